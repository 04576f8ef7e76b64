#include "balance_plans.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "balance/plan_timeline.h"
#include "balance/shuffle.h"
#include "base/checked_math.h"

namespace headrace::cli {
namespace {

/// Adds up one mode over plans.
class ModeSum {
 public:
  void add(const Prediction& prediction, const BalancePlan& plan) {
    time_ += prediction.makespan;
    lower_bound_ += prediction.lower_bound;
    work_ += std::accumulate(plan.rank_costs.begin(), plan.rank_costs.end(), 0.0) /
             static_cast<double>(plan.ranks.size());
  }
  ModeTotal total() const {
    return {.time = time_,
            .waiting = time_ > 0.0 ? std::max(1.0 - work_ / time_, 0.0) : 0.0,
            .lower_bound = lower_bound_};
  }

 private:
  double time_ = 0.0;
  double lower_bound_ = 0.0;
  double work_ = 0.0;  ///< of a rank, on average
};

/// A plan of part of a batch with its own samples alone, renumbered from 0.
PlannedMinibatch part_of_batch(BalancePlan plan, const std::vector<std::int64_t>& batch) {
  std::vector<std::size_t> own = plan.oversize;
  for (const auto& microbatches : plan.ranks) {
    for (const Microbatch& microbatch : microbatches) {
      for (const SamplePiece& piece : microbatch.pieces) {
        own.push_back(piece.sample);
      }
    }
  }
  std::ranges::sort(own);
  own.erase(std::unique(own.begin(), own.end()), own.end());
  const auto renumber = [&own](std::size_t& sample) {
    sample = static_cast<std::size_t>(std::ranges::lower_bound(own, sample) - own.begin());
  };
  std::ranges::for_each(plan.oversize, renumber);
  for (auto& microbatches : plan.ranks) {
    for (Microbatch& microbatch : microbatches) {
      for (SamplePiece& piece : microbatch.pieces) {
        renumber(piece.sample);
      }
    }
  }
  PlannedMinibatch result{.plan = std::move(plan)};
  for (const std::size_t sample : own) {
    result.samples.push_back(batch[sample]);
  }
  return result;
}

}  // namespace

Result<std::vector<PlannedMinibatch>> plan_minibatches(const std::vector<std::int64_t>& lengths,
                                                       const Cutting& cutting,
                                                       BalanceOptions options) {
  std::vector<std::size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (cutting.shuffle) {
    const Permutation permutation(lengths.size(), cutting.seed, cutting.epoch);
    HEADRACE_TRY_ASSIGN(order, permutation.slice(0, lengths.size()));
  }
  const std::vector<std::int64_t> batch(order.begin(), order.end());
  std::vector<std::int64_t> in_order;
  for (const std::size_t sample : order) {
    in_order.push_back(lengths[sample]);
  }
  const std::size_t count = cutting.samples_per_minibatch > 0
                                ? static_cast<std::size_t>(cutting.samples_per_minibatch)
                                : lengths.size();
  std::vector<PlannedMinibatch> result;
  if (options.strategy == Strategy::verl_native) {
    options.labels = batch;
    const std::size_t minibatches = lengths.size() / count + (lengths.size() % count > 0 ? 1 : 0);
    HEADRACE_TRY_ASSIGN(std::vector<BalancePlan> plans, plan_batch(in_order, minibatches, options));
    for (BalancePlan& plan : plans) {
      result.push_back(part_of_batch(std::move(plan), batch));
    }
    return result;
  }
  for (std::size_t begin = 0; begin < batch.size();) {
    const std::size_t size = std::min(count, batch.size() - begin);
    options.labels = std::span(batch).subspan(begin, size);
    HEADRACE_TRY_ASSIGN(BalancePlan plan,
                        plan_minibatch(std::span(in_order).subspan(begin, size), options));
    result.push_back(
        {.samples = {options.labels.begin(), options.labels.end()}, .plan = std::move(plan)});
    begin += size;
  }
  return result;
}

Totals totals(const std::vector<PlannedMinibatch>& plans, std::int64_t alignment) {
  Totals result{.minibatches = plans.size(), .fewest = plans.front().plan.ranks.front().size()};
  ModeSum lockstep;
  ModeSum on_demand;
  ModeSum best;
  double aligned = 0.0;
  for (const auto& [samples, plan] : plans) {
    result.samples += samples.size();
    result.tokens += plan.tokens;
    result.tokens_lost += plan.tokens_lost;
    result.oversize += plan.oversize.size();
    for (const auto& microbatches : plan.ranks) {
      result.fewest = std::min(result.fewest, microbatches.size());
      result.most = std::max(result.most, microbatches.size());
      for (const Microbatch& microbatch : microbatches) {
        result.microbatches += microbatch.filler() ? 0 : 1;
        result.fillers += microbatch.filler() ? 1 : 0;
        for (const SamplePiece& piece : microbatch.pieces) {
          aligned += static_cast<double>(ceil_div(piece.tokens, alignment) * alignment);
        }
      }
    }
    lockstep.add(plan.lockstep, plan);
    on_demand.add(plan.on_demand, plan);
    best.add(prediction(plan, auto_mode(plan)), plan);
    result.lockstep_minibatches += auto_mode(plan) == Mode::lockstep ? 1 : 0;
  }
  result.cap_use = aligned / (static_cast<double>(result.microbatches) *
                              static_cast<double>(plans.front().plan.cap));
  result.lockstep = lockstep.total();
  result.on_demand = on_demand.total();
  result.recommended = best.total();
  return result;
}

std::size_t worst(const std::vector<PlannedMinibatch>& plans) {
  const auto found = std::ranges::max_element(plans, {}, [](const PlannedMinibatch& minibatch) {
    return prediction(minibatch.plan, auto_mode(minibatch.plan)).bubble;
  });
  return static_cast<std::size_t>(found - plans.begin());
}

}  // namespace headrace::cli
