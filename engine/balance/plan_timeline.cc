#include "balance/plan_timeline.h"

#include <algorithm>

namespace headrace {

std::vector<std::vector<Span>> timeline(const BalancePlan& plan, Mode mode) {
  std::vector<std::vector<Span>> spans(plan.ranks.size());
  std::vector<double> now(plan.ranks.size(), 0.0);
  bool more = true;
  for (std::size_t step = 0; more; ++step) {
    more = false;
    for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
      if (step >= plan.ranks[rank].size()) {
        continue;
      }
      more = true;
      const Microbatch& microbatch = plan.ranks[rank][step];
      const double begin = now[rank];
      now[rank] += microbatch.cost;
      if (!microbatch.filler()) {
        spans[rank].push_back({.microbatch = step, .begin = begin, .end = now[rank]});
      }
    }
    if (mode == Mode::lockstep) {
      std::ranges::fill(now, *std::ranges::max_element(now));
    }
  }
  return spans;
}

Mode auto_mode(const BalancePlan& plan) {
  return plan.equal_counts() ? plan.recommendation : Mode::on_demand;
}

const Prediction& prediction(const BalancePlan& plan, Mode mode) {
  return mode == Mode::lockstep ? plan.lockstep : plan.on_demand;
}

}  // namespace headrace
