#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "balance/balance_plan.h"
#include "balance/cost_model.h"
#include "balance/workloads.h"
#include "base/result.h"

namespace headrace {

/// A workload cut into minibatches, compute alone.
struct BubbleCase {
  CostModel cost;
  Workload workload = Workload::longalign;
  int world_size = 8;
  std::int64_t cap = 65'536;
  std::size_t samples_per_rank = 4;  ///< in a minibatch
  std::size_t minibatches = 200;
  /// Optimizer steps a batch: what verl_native levels ranks over. Must divide `minibatches`.
  std::size_t minibatches_per_batch = 4;
  std::uint64_t seed = 20;
};

/// What one strategy comes to: on-demand for lb_mini, lockstep for the others.
struct StrategyBubble {
  Strategy strategy = Strategy::none;
  double bubble = 0.0;        ///< share of all ranks' time over all minibatches spent waiting
  double makespan = 0.0;      ///< of all minibatches one after the other
  double over_lb_mini = 0.0;  ///< that over lb_mini's
};

/// Of every strategy, from none to lb_mini. Errors as plan_batch.
Result<std::vector<StrategyBubble>> workload_bubbles(const BubbleCase& bubbles);

}  // namespace headrace
