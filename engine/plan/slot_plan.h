#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace headrace {

/// When a group's parameters may be dropped again.
enum class Residency : std::uint8_t {
  ring,   ///< resharded after forward, unsharded again for backward
  stays,  ///< unsharded from forward to backward: reshard_after_forward=False
  root,   ///< stays too, and is in use from the first forward to the last backward
};

struct SlotGroup {
  std::string name;
  std::size_t bytes = 0;  ///< of the landing: NS of the group
  Residency residency = Residency::ring;
};

struct SlotOptions {
  /// Groups of the ring that may be unsharded at the same time: 1 more than are prefetched.
  std::size_t ring_slots = 2;
};

/// A reusable landing. A slot of the ring serves several groups in turn, any other one group.
struct LandingSlot {
  std::size_t bytes = 0;  ///< of the largest group assigned to it
  bool in_ring = false;

  bool operator==(const LandingSlot&) const = default;
};

/// Which landing each group uses, fixed for the life of the session. The groups come in execution
/// order of the forward pass.
///
/// - Groups of the ring take its slots in turn: the g-th of them uses slot g mod `ring_slots`.
/// - The last group, where it stays unsharded, is folded into the ring after its predecessor: it is
///   live only across the turn-around from forward to backward, when that predecessor is the only
///   other one of the ring. (An evaluation has no turn-around: there it must be resharded.)
/// - Other groups that stay have a slot of their own.
///
/// Post-conditions: two groups share a slot only if both are in the ring; any `ring_slots` groups
/// that follow each other in the ring lie in different slots; no slot is larger than its largest
/// group or without one.
class SlotPlan {
 public:
  /// Error where there is no group or no ring slot.
  static Result<SlotPlan> make(std::vector<SlotGroup> groups, SlotOptions options = {});

  /// First those of the ring.
  const std::vector<LandingSlot>& slots() const { return slots_; }
  std::size_t slot_of(std::size_t group) const { return slot_of_[group]; }
  bool in_ring(std::size_t group) const { return slots_[slot_of_[group]].in_ring; }
  /// All slots together.
  std::size_t bytes() const;
  /// Error that names both groups where two of these, each given once, would be in one slot at the
  /// same time.
  Status check_together(std::span<const std::size_t> groups) const;

 private:
  SlotPlan(std::vector<SlotGroup> groups, SlotOptions options);

  std::vector<SlotGroup> groups_;
  SlotOptions options_;
  std::vector<LandingSlot> slots_;
  std::vector<std::size_t> slot_of_;
};

}  // namespace headrace
