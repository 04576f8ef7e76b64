#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "balance/pieces.h"
#include "base/result.h"

namespace headrace {

/// How samples are given to ranks and packed into microbatches.
enum class Strategy : std::uint8_t {
  none,            ///< round robin, one sample a microbatch
  sorted,          ///< the same by falling length
  lb_micro,        ///< as many microbatches on every rank, costs levelled step by step
  lb_mini,         ///< costs levelled over the whole minibatch; ranks may differ in microbatches
  verl_native,     ///< two-level: levels the whole batch over ranks, then cuts it into minibatches
  verl_optimized,  ///< two-level: cuts minibatches first, then levels each over ranks
};

/// Names as users write them: none, sorted, lb-micro, lb-mini, verl-native, verl-optimized.
const char* to_string(Strategy strategy);
Result<Strategy> parse_strategy(std::string_view name);
/// All of them, in the order above.
std::span<const Strategy> strategies();

/// How ranks exchange parameters and gradients: they meet every layer, or once a minibatch.
enum class Mode : std::uint8_t { lockstep, on_demand };

/// "lockstep" or "on-demand".
const char* to_string(Mode mode);
Result<Mode> parse_mode(std::string_view name);

/// The predicted gain over lockstep, as a share of its time, below which on-demand is not
/// recommended.
inline constexpr double k_least_gain = 0.02;

/// What one rank trains in one forward and backward. Without pieces it is a filler: it keeps a rank
/// in step in lockstep, counts with weight zero, and trains on nothing.
struct Microbatch {
  std::vector<SamplePiece> pieces;
  std::int64_t tokens = 0;
  double cost = 0.0;

  bool filler() const { return pieces.empty(); }
  bool operator==(const Microbatch&) const = default;
};

/// Compute alone, communication free.
struct Prediction {
  double makespan = 0.0;  ///< when the last rank is done, in the cost model's unit
  double bubble = 0.0;    ///< share of all ranks' time spent waiting, 0 to 1
  /// No plan of the same samples under the same cap and groups has a smaller makespan; 0 where
  /// nothing is known.
  double lower_bound = 0.0;

  bool operator==(const Prediction&) const = default;
};

/// One minibatch: which rank trains which samples in which microbatch. A value; the same on every
/// rank.
struct BalancePlan {
  Strategy strategy = Strategy::none;
  std::int64_t cap = 0;
  std::vector<std::vector<Microbatch>> ranks;  ///< [rank], in order of execution
  std::vector<double> rank_costs;
  std::vector<std::size_t> oversize;  ///< samples changed by the oversize policy, ascending
  std::int64_t tokens = 0;            ///< of all microbatches
  std::int64_t tokens_lost = 0;       ///< to the oversize policy
  Prediction lockstep;   ///< sum over steps of the costliest rank; short ranks padded with fillers
  Prediction on_demand;  ///< the costliest rank
  Mode recommendation = Mode::lockstep;

  int world_size() const { return static_cast<int>(ranks.size()); }
  /// Whether lockstep can run it as it is.
  bool equal_counts() const;
  /// Of every microbatch of every rank; costs and predictions are left out. `keys`, where given,
  /// are mixed in: what samples mean outside the plan, such as their indices in a dataset.
  std::uint64_t digest(std::span<const std::int64_t> keys = {}) const;

  bool operator==(const BalancePlan&) const = default;
};

/// The same plan with fillers at the end of every rank that has fewer microbatches than another.
BalancePlan padded_for_lockstep(BalancePlan plan);

/// Fills rank_costs, tokens, both predictions and the recommendation from the microbatches:
/// on-demand where it is predicted to take less than (1 - least_gain) of lockstep's time. Lower
/// bounds stay.
BalancePlan with_predictions(BalancePlan plan, double least_gain);

}  // namespace headrace
