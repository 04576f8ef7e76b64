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

}  // namespace headrace
