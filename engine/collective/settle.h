#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collective/on_demand.h"

namespace headrace {

/// What a rank tells every owner on leaving a bracket.
struct BracketRecord {
  BracketDigest digest;
  std::uint64_t pushes_sent = 0;  ///< to this owner, since the session began
  double loss_sum = 0;
  double weight = 0;        ///< tokens or samples of this rank
  std::uint64_t flags = 0;  ///< the caller's; settle returns the union
};
static_assert(sizeof(BracketRecord) <= OnDemandPlan::k_record_bytes);

/// What a minibatch came to: the same bits on every rank.
struct Settlement {
  double loss_sum = 0;
  double weight = 0;
  std::uint64_t flags = 0;
  std::vector<std::uint64_t> touched;                  ///< mask over all parameters
  std::vector<std::vector<std::uint64_t>> touched_by;  ///< the same of each rank alone

  /// A rank's loss, weight and flags; in rank order, so that the sums have the same bits
  /// everywhere.
  void add(const BracketRecord& record);
};

/// Writes this rank's record into the slot of the epoch at every owner, then shows the epoch.
/// `sent[owner]` becomes `pushes_sent`.
Status finish(const OnDemand& on_demand, BracketRecord record,
              std::span<const std::uint64_t> touched, std::span<const std::uint64_t> sent);

/// Waits until every rank's record of the epoch is in and every push that it sent here has been
/// added; then slot 0 of this rank's accumulators holds the sums.
Result<Settlement> settle(const OnDemand& on_demand, const BracketDigest& digest);

}  // namespace headrace
