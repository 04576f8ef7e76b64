#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "plan/address_map.h"
#include "plan/all_gather_plan.h"
#include "plan/model_spec.h"
#include "plan/reduce_scatter_plan.h"
#include "plan/schedule.h"
#include "plan/topology.h"

namespace headrace {

/// What all ranks must agree on for lockstep, beside topology and model.
struct LockstepOptions {
  /// By group: shards live in the arena in the dtype in which they travel. Others are cast for
  /// every gather. Empty: no group.
  std::vector<bool> adopted;
  AllGatherOptions all_gather;          ///< `cast` and `shard_dtype` are set by group
  ReduceScatterOptions reduce_scatter;  ///< gradients' dtypes and the first signal are set by call
};

/// Where an arena region begins, in the symmetric memory of every rank, and the size of its banks,
/// which is the same for all programs.
struct ArenaRegion {
  std::size_t offset = 0;
  RegionSize size;
};
using ArenaRegions = std::array<ArenaRegion, k_regions>;

/// Where everything lies in a rank's arena for lockstep, from `begin` on, and the programs that
/// work there. All ranks compute the same plan. Regions, in order, each starting on a page; up to
/// control_end is what processors touch:
///
///   call signals   one a rank
///   digests        [rank][call mod 2]
///   signals        of all programs
///   resident       group after group, where adopted
///   stage, staging, outbox, inbox, spare: as large as the largest of all groups' programs needs,
///                  for gradients in the compute dtype and in fp32
class LockstepPlan {
 public:
  /// `begin` is a multiple of the page size. Error for options out of range.
  static Result<LockstepPlan> make(const Topology& topology, const ModelSpec& model,
                                   const LockstepOptions& options, std::size_t begin);

  const Topology& topology() const { return topology_; }
  /// With one group more than the session's model: the last holds a record of every rank, which
  /// ranks all-gather to agree.
  const ModelSpec& model() const { return model_; }
  const AddressMap& map(std::size_t group) const { return maps_[group]; }
  std::size_t groups() const { return maps_.size(); }
  std::size_t record_group() const { return groups() - 1; }
  bool adopted(std::size_t group) const;

  /// Ranks that this one exchanges anything with, itself included: of its node and of its rail.
  std::vector<int> neighbours(int rank) const;
  std::size_t call_signal(int rank) const;
  std::size_t digest_offset(int rank, std::uint64_t call) const;
  std::size_t signals_offset() const { return signals_; }
  /// Identifiers of all programs.
  std::size_t signals() const { return signal_count_; }
  /// Of an adopted group's shards, one after the other by the published map.
  std::size_t resident_offset(std::size_t group) const { return resident_[group]; }
  /// Where the arena regions are for calls of a group.
  ArenaRegions regions(std::size_t group) const;
  std::size_t control_end() const { return control_end_; }
  std::size_t end() const { return end_; }

  AllGatherOptions all_gather_options(std::size_t group) const;
  /// For gradients in these dtypes, one a parameter of the group.
  ReduceScatterOptions reduce_scatter_options(std::vector<DType> gradients) const;

  static constexpr std::size_t k_call_digest_bytes = 64;
  static constexpr std::size_t k_record_bytes = 128;

 private:
  LockstepPlan(const Topology& topology, const ModelSpec& model, const LockstepOptions& options);
  Status lay_out(std::size_t begin);

  Topology topology_;
  ModelSpec model_;
  LockstepOptions options_;
  std::vector<AddressMap> maps_;
  std::size_t call_signals_ = 0;
  std::size_t digests_ = 0;
  std::size_t signals_ = 0;
  std::size_t signal_count_ = 0;
  std::vector<std::size_t> resident_;  ///< by group
  ArenaRegions regions_{};
  std::size_t control_end_ = 0;
  std::size_t end_ = 0;
};

}  // namespace headrace
