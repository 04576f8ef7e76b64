#include "balance/workload_bubbles.h"

#include <fmt/format.h>

#include <array>
#include <span>

#include "balance/strategies.h"

namespace headrace {
namespace {

constexpr std::array k_strategies = {Strategy::none,        Strategy::sorted,
                                     Strategy::verl_native, Strategy::verl_optimized,
                                     Strategy::lb_micro,    Strategy::lb_mini};

Result<StrategyBubble> bubble_of(const BubbleCase& bubbles, Strategy strategy) {
  const std::size_t minibatch =
      bubbles.samples_per_rank * static_cast<std::size_t>(bubbles.world_size);
  const std::vector<std::int64_t> lengths =
      workload_lengths(bubbles.workload, minibatch * bubbles.minibatches, bubbles.seed);
  const std::size_t batch = minibatch * bubbles.minibatches_per_batch;
  const BalanceOptions options{.world_size = bubbles.world_size,
                               .cap = bubbles.cap,
                               .strategy = strategy,
                               .cost = bubbles.cost};
  StrategyBubble result{.strategy = strategy};
  double waiting = 0.0;  // of a rank, on average
  for (std::size_t first = 0; first < lengths.size(); first += batch) {
    HEADRACE_TRY_ASSIGN(const std::vector<BalancePlan> plans,
                        plan_batch(std::span(lengths).subspan(first, batch),
                                   bubbles.minibatches_per_batch, options));
    for (const BalancePlan& plan : plans) {
      const Prediction& own = strategy == Strategy::lb_mini ? plan.on_demand : plan.lockstep;
      result.makespan += own.makespan;
      waiting += own.bubble * own.makespan;
    }
  }
  result.bubble = waiting / result.makespan;
  return result;
}

}  // namespace

Result<std::vector<StrategyBubble>> workload_bubbles(const BubbleCase& bubbles) {
  if (bubbles.minibatches_per_batch < 1 || bubbles.minibatches < 1 ||
      bubbles.minibatches % bubbles.minibatches_per_batch != 0) {
    return operation_error(fmt::format("{} minibatches are not whole batches of {}",
                                       bubbles.minibatches, bubbles.minibatches_per_batch));
  }
  std::vector<StrategyBubble> result;
  for (const Strategy strategy : k_strategies) {
    HEADRACE_TRY_ASSIGN(result.emplace_back(), bubble_of(bubbles, strategy));
  }
  for (StrategyBubble& one : result) {  // lb_mini is the last
    one.over_lb_mini = one.makespan / result.back().makespan;
  }
  return result;
}

}  // namespace headrace
