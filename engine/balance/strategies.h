#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "balance/balance_plan.h"
#include "balance/cost_model.h"
#include "balance/pieces.h"
#include "base/result.h"

namespace headrace {

/// What a plan is made for, and how hard to try.
struct BalanceOptions {
  int world_size = 1;
  std::int64_t cap = 0;  ///< most tokens of a microbatch; hard
  Strategy strategy = Strategy::lb_mini;
  CostModel cost;
  Oversize oversize = Oversize::error;
  std::int64_t alignment = 1;  ///< lengths count towards the cap rounded up to a multiple of this
  double least_gain = k_least_gain;
  /// What errors call the samples; their indices if empty. Must outlive the call.
  std::span<const std::int64_t> labels = {};
  /// Limits of the local searches and of the slower constructions: they keep a plan of 256 samples
  /// on 8 ranks well under a millisecond and a huge one from taking quadratic time.
  std::size_t exchange_rounds = 256;
  std::size_t exchange_trials = 60'000;
  std::size_t placement_trials = 10'000'000;
};

/// Plans one minibatch of samples with these lengths. A pure function: the same input gives the
/// same plan on every rank and platform, ties broken by index. Every sample that the oversize
/// policy keeps is in the plan exactly once. Errors as pieces_under_cap, and a world size below 1.
Result<BalancePlan> plan_minibatch(std::span<const std::int64_t> lengths,
                                   const BalanceOptions& options);

}  // namespace headrace
