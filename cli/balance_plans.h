#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "balance/strategies.h"
#include "base/result.h"

namespace headrace::cli {

/// How samples become minibatches: their order, and how many each has (the last may have fewer).
struct Cutting {
  std::int64_t samples_per_minibatch = 0;  ///< 0: all of them in one
  bool shuffle = false;                    ///< as headrace.data.minibatches
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
};

struct PlannedMinibatch {
  std::vector<std::int64_t> samples;  ///< positions among all lengths; the plan's samples index it
  BalancePlan plan;
};

/// One plan for each minibatch, in order. Minibatches are consecutive samples, except that
/// verl-native takes all lengths as one batch and cuts it itself. Errors name samples by their
/// position among all lengths.
Result<std::vector<PlannedMinibatch>> plan_minibatches(const std::vector<std::int64_t>& lengths,
                                                       const Cutting& cutting,
                                                       BalanceOptions options);

/// What one mode takes, in the cost model's unit.
struct ModeTotal {
  double time = 0.0;         ///< sum of the makespans
  double waiting = 0.0;      ///< share of all ranks' time, 0 to 1
  double lower_bound = 0.0;  ///< of `time`, for any plan of the same minibatches; 0: none known
};

/// What plans come to, one or many.
struct Totals {
  std::size_t minibatches = 0;
  std::size_t samples = 0;
  std::int64_t tokens = 0;
  std::int64_t tokens_lost = 0;
  std::size_t oversize = 0;      ///< samples that the oversize policy changed
  std::size_t microbatches = 0;  ///< fillers left out
  std::size_t fillers = 0;
  std::size_t fewest = 0;  ///< microbatches of a rank in a minibatch, fillers included
  std::size_t most = 0;
  double cap_use = 0.0;  ///< aligned tokens over what the microbatches could hold
  ModeTotal lockstep;
  ModeTotal on_demand;
  ModeTotal recommended;                 ///< each minibatch as mode="auto" runs it
  std::size_t lockstep_minibatches = 0;  ///< that mode="auto" runs in lockstep
};

/// `plans` is not empty.
Totals totals(const std::vector<PlannedMinibatch>& plans, std::int64_t alignment);

/// The minibatch that waits the most of its time, as mode="auto" runs it.
std::size_t worst(const std::vector<PlannedMinibatch>& plans);

}  // namespace headrace::cli
