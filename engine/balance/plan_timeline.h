#pragma once

#include <cstddef>
#include <vector>

#include "balance/balance_plan.h"

namespace headrace {

/// One microbatch at work, in the cost model's unit from the start of the minibatch.
struct Span {
  std::size_t microbatch = 0;
  double begin = 0.0;
  double end = 0.0;

  bool operator==(const Span&) const = default;
};

/// When each rank computes, [rank], fillers left out: one microbatch after the other on demand; in
/// lockstep each begins when all ranks are done with the one before. Waiting is what lies between
/// spans and after the last, up to the predicted makespan of that mode.
std::vector<std::vector<Span>> timeline(const BalancePlan& plan, Mode mode);

/// How an engine of mode "auto" runs a plan: as it recommends, but never in lockstep where ranks
/// have different numbers of microbatches.
Mode auto_mode(const BalancePlan& plan);

/// The plan's prediction for a mode.
const Prediction& prediction(const BalancePlan& plan, Mode mode);

}  // namespace headrace
