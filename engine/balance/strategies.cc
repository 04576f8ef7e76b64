#include "balance/strategies.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <vector>

#include "balance/packing.h"
#include "base/checked_math.h"

namespace headrace {
namespace {

PackingFunction packing_function(Strategy strategy) {
  switch (strategy) {
    case Strategy::none:
      return pack_none;
    case Strategy::lb_micro:
      return pack_lb_micro;
    case Strategy::lb_mini:
      return pack_lb_mini;
  }
  return pack_none;
}

Microbatch microbatch_of(const std::vector<std::size_t>& items, const std::vector<Piece>& pieces,
                         const std::vector<double>& costs, double per_microbatch) {
  Microbatch microbatch;
  microbatch.cost = items.empty() ? 0.0 : per_microbatch;
  for (const std::size_t item : items) {
    microbatch.pieces.push_back(pieces[item]);
    microbatch.tokens += pieces[item].tokens;
    microbatch.cost += costs[item];
  }
  return microbatch;
}

}  // namespace

Packing pack_none(const PackingProblem& problem) {
  Packing packing(problem.ranks);
  for (std::size_t piece = 0; piece < problem.sizes.size(); ++piece) {
    packing[piece % problem.ranks].push_back({piece});
  }
  return packing;
}

Result<BalancePlan> plan_minibatch(std::span<const std::int64_t> lengths,
                                   const BalanceOptions& options) {
  if (options.world_size < 1) {
    return operation_error(
        fmt::format("the world size must be at least 1, not {}", options.world_size));
  }
  HEADRACE_TRY_ASSIGN(Pieces kept, pieces_under_cap(lengths, options.cap, options.alignment,
                                                    options.oversize, options.labels));
  std::vector<std::int64_t> sizes;
  std::vector<double> costs;
  double total = 0.0;
  for (const Piece& piece : kept.pieces) {
    sizes.push_back(ceil_div(piece.tokens, options.alignment) * options.alignment);
    costs.push_back(options.cost.sample(piece.tokens));
    total += costs.back();
  }
  if (!std::isfinite(total)) {
    return operation_error(
        "the predicted cost of these lengths is not finite; scale the cost model's coefficients "
        "down");
  }
  const PackingProblem problem{.sizes = sizes,
                               .costs = costs,
                               .ranks = static_cast<std::size_t>(options.world_size),
                               .cap = options.cap,
                               .per_microbatch = options.cost.per_microbatch(),
                               .exchange_rounds = options.exchange_rounds,
                               .exchange_trials = options.exchange_trials,
                               .placement_trials = options.placement_trials};
  const Packing packing = packing_function(options.strategy)(problem);

  BalancePlan plan;
  plan.strategy = options.strategy;
  plan.cap = options.cap;
  plan.oversize = std::move(kept.oversize);
  plan.tokens_lost = kept.tokens_lost;
  plan.ranks.reserve(packing.size());
  for (const Bins& bins : packing) {
    std::vector<Microbatch>& microbatches = plan.ranks.emplace_back();
    for (const auto& items : bins) {
      microbatches.push_back(
          microbatch_of(items, kept.pieces, costs, options.cost.per_microbatch()));
    }
  }
  return with_predictions(std::move(plan), options.least_gain);
}

}  // namespace headrace
