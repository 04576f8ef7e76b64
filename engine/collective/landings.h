#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "plan/address_map.h"
#include "plan/slot_plan.h"
#include "runtime/stream.h"
#include "transport/transport.h"

namespace headrace {

/// Landings that the engine owns, for memory that an allocator of the caller's would hand out while
/// a stream still uses it: the slots of a plan, each with two events. *Free*: who had the slot is
/// done with it, so it may be written. *Ready*: the parameters are there, so they may be read.
///
/// A group goes through `begin` (its gather), `landed`, `use` and `release`. Gathers are enqueued
/// in the order of their begins, on one stream. One caller at a time; nothing here waits.
class Landings {
 public:
  static constexpr std::size_t k_alignment = 256;  ///< of every parameter

  /// Bytes that a group needs in its slot.
  static std::size_t bytes(const AddressMap& map);
  /// `maps[g]` is the map of the plan's group g, whose slot holds Landings::bytes of it. The plan
  /// must outlive the object.
  static Result<std::unique_ptr<Landings>> make(const SlotPlan* plan, std::vector<AddressMap> maps,
                                                Transport* transport);

  /// Where a group is to land.
  struct Place {
    std::vector<void*> parameters;
    Event free;
  };
  /// Gives the group its slot. A gather that was begun for another group of the slot and is not in
  /// use is dropped, so that a rank never waits for itself; where another group is in use, or this
  /// one is, that is an error naming both.
  Result<Place> begin(std::size_t group);
  /// The gather that `begin` was for has been enqueued; it is done when `ready` has happened.
  void landed(std::size_t group, Event ready);

  /// What may be read once `ready` has happened.
  struct Parameters {
    std::vector<void*> parameters;
    Event ready;
  };
  /// Takes the group into use; none where it has not landed, or was dropped since: begin again.
  std::optional<Parameters> use(std::size_t group);
  /// The group is no longer used once `free` has happened. Nothing where it is not in use.
  void release(std::size_t group, Event free);

 private:
  enum class Phase { empty, begun, landed, used };
  struct Slot {
    std::shared_ptr<std::byte> memory;
    std::size_t group = 0;  ///< the last one
    Phase phase = Phase::empty;
    Event free;
    Event ready;
  };

  Landings(const SlotPlan* plan, std::vector<AddressMap> maps)
      : plan_(plan), maps_(std::move(maps)) {}
  Slot& slot_of(std::size_t group) { return slots_[plan_->slot_of(group)]; }
  std::vector<void*> addresses(std::size_t group);

  const SlotPlan* plan_;
  std::vector<AddressMap> maps_;
  std::vector<Slot> slots_;
};

}  // namespace headrace
