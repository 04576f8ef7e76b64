#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "balance/balance_plan.h"
#include "balance/communication_model.h"
#include "balance/cost_model.h"
#include "balance/pieces.h"
#include "base/result.h"

namespace headrace {

/// Plans are made for no more ranks than this.
inline constexpr int k_most_ranks = 1 << 20;
/// More microbatches than this cannot be asked for, of a rank and of all ranks together.
inline constexpr int k_most_min_microbatches = 1 << 16;
inline constexpr std::int64_t k_most_min_microbatches_together = 1 << 22;

/// What a plan is made for, and how hard to try.
struct BalanceOptions {
  int world_size = 1;    ///< at most k_most_ranks
  std::int64_t cap = 0;  ///< most tokens of a microbatch; hard
  Strategy strategy = Strategy::lb_mini;
  CostModel cost;
  Oversize oversize = Oversize::error;
  std::int64_t alignment = 1;  ///< lengths count towards the cap rounded up to a multiple of this
  /// One id a sample, or none: samples of one id, such as the rollouts of one prompt, stay on one
  /// rank and in one minibatch. Must outlive the call.
  std::span<const std::int64_t> groups = {};
  /// As many samples on every rank, give or take one where they do not divide; an error where
  /// groups prevent it. A piece of a split sample counts as a sample.
  bool equal_samples = false;
  /// Of every rank, at most k_most_min_microbatches; a rank with fewer samples gets fillers.
  int min_microbatches = 0;
  double least_gain = k_least_gain;
  /// The recommendation reads it; packing does not.
  CommunicationModel communication = {};
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
/// policy keeps is in the plan exactly once. Errors as pieces_under_cap; a world size
/// out of range;
/// groups that are not one a sample; groups that prevent equal_samples; min_microbatches out of
/// range.
Result<BalancePlan> plan_minibatch(std::span<const std::int64_t> lengths,
                                   const BalanceOptions& options);

/// Plans a batch that is trained in so many minibatches, an optimizer step each. Samples of the
/// plans are indices in the batch. Minibatches are consecutive samples in nearly equal numbers
/// (consecutive groups, where there are any), except under verl_native, which first gives as many
/// samples to each rank, levelled over the whole batch, and cuts each rank's samples then. Errors
/// as plan_minibatch, and where there are too few samples or groups for the minibatches.
Result<std::vector<BalancePlan>> plan_batch(std::span<const std::int64_t> lengths,
                                            std::size_t minibatches, const BalanceOptions& options);

}  // namespace headrace
