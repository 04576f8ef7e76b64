#include "balance/prepared_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "balance/lower_bound.h"
#include "base/checked_math.h"

namespace headrace {
namespace {

/// Numbers 0, 1, ... for the ids of the pieces' samples, in order of their first piece.
std::vector<std::size_t> numbered_groups(std::span<const std::int64_t> ids,
                                         const std::vector<SamplePiece>& pieces) {
  std::vector<std::size_t> groups;
  groups.reserve(pieces.size());
  std::unordered_map<std::int64_t, std::size_t> numbers;
  for (const SamplePiece& piece : pieces) {
    groups.push_back(numbers.try_emplace(ids[piece.sample], numbers.size()).first->second);
  }
  return groups;
}

Microbatch microbatch_of(const std::vector<std::size_t>& items, const PreparedSamples& samples,
                         double per_microbatch) {
  Microbatch microbatch;
  microbatch.cost = items.empty() ? 0.0 : per_microbatch;
  for (const std::size_t item : items) {
    microbatch.pieces.push_back(samples.kept.pieces[item]);
    microbatch.tokens += samples.kept.pieces[item].tokens;
    microbatch.cost += samples.costs[item];
  }
  return microbatch;
}

Status check_equal_counts(const Packing& packing) {
  std::vector<std::size_t> counts;
  for (const Bins& microbatches : packing) {
    std::size_t& count = counts.emplace_back(0);
    for (const auto& items : microbatches) {
      count += items.size();
    }
  }
  const auto [least, most] = std::ranges::minmax_element(counts);
  if (*most - *least > 1) {
    return operation_error(fmt::format(
        "no way was found to give {} ranks equal numbers of samples: groups stay together, so that "
        "rank {} would have {} samples and rank {} only {}; leave equal_samples out, or give "
        "groups "
        "of one size and a multiple of {} of them",
        packing.size(), most - counts.begin(), *most, least - counts.begin(), *least,
        packing.size()));
  }
  return {};
}

}  // namespace

PackingProblem PreparedSamples::problem(const BalanceOptions& options) const {
  return {.sizes = sizes,
          .costs = costs,
          .ranks = static_cast<std::size_t>(options.world_size),
          .cap = options.cap,
          .per_microbatch = options.cost.per_microbatch(),
          .groups = groups,
          .equal_counts = options.equal_samples,
          .min_microbatches = static_cast<std::size_t>(options.min_microbatches),
          .exchange_rounds = options.exchange_rounds,
          .exchange_trials = options.exchange_trials,
          .placement_trials = options.placement_trials};
}

Result<PreparedSamples> prepare(std::span<const std::int64_t> lengths,
                                const BalanceOptions& options) {
  if (options.world_size < 1) {
    return operation_error(
        fmt::format("the world size must be at least 1, not {}", options.world_size));
  }
  if (options.world_size > k_most_ranks) {
    return operation_error(
        fmt::format("the world size must be at most {}, not {}", k_most_ranks, options.world_size));
  }
  if (options.min_microbatches < 0 || options.min_microbatches > k_most_min_microbatches) {
    return operation_error(fmt::format("min_microbatches must lie between 0 and {}, not {}",
                                       k_most_min_microbatches, options.min_microbatches));
  }
  if (std::int64_t{options.world_size} * options.min_microbatches >
      k_most_min_microbatches_together) {
    return operation_error(fmt::format(
        "min_microbatches={} on {} ranks are more than {} microbatches", options.min_microbatches,
        options.world_size, k_most_min_microbatches_together));
  }
  if (!options.groups.empty() && options.groups.size() != lengths.size()) {
    return operation_error(fmt::format("there are {} groups for {} lengths; every sample needs one",
                                       options.groups.size(), lengths.size()));
  }
  PreparedSamples samples;
  HEADRACE_TRY_ASSIGN(samples.kept, pieces_under_cap(lengths, options.cap, options.alignment,
                                                     options.oversize, options.labels));
  double total = 0.0;
  for (const SamplePiece& piece : samples.kept.pieces) {
    samples.sizes.push_back(ceil_div(piece.tokens, options.alignment) * options.alignment);
    samples.costs.push_back(options.cost.sample(piece.tokens));
    total += samples.costs.back();
  }
  if (!std::isfinite(total)) {
    return operation_error(
        "the predicted cost of these lengths is not finite; scale the cost model's coefficients "
        "down");
  }
  if (!options.groups.empty()) {
    samples.groups = numbered_groups(options.groups, samples.kept.pieces);
  }
  return samples;
}

Result<BalancePlan> finish(PreparedSamples samples, const BalanceOptions& options,
                           const Packing& packing) {
  if (options.equal_samples) {
    HEADRACE_TRY(check_equal_counts(packing));
  }
  BalancePlan plan;
  plan.strategy = options.strategy;
  plan.cap = options.cap;
  plan.tokens_lost = samples.kept.tokens_lost;
  plan.ranks.reserve(packing.size());
  for (const Bins& bins : packing) {
    std::vector<Microbatch>& microbatches = plan.ranks.emplace_back();
    for (const auto& items : bins) {
      microbatches.push_back(microbatch_of(items, samples, options.cost.per_microbatch()));
    }
  }
  plan = with_predictions(std::move(plan), options.least_gain);
  plan.recommendation = recommend(plan, options.communication, options.least_gain);
  const LowerBounds bounds = lower_bounds(samples.problem(options));
  // Where a plan is perfect, its makespan and the bound differ by rounding alone.
  plan.lockstep.lower_bound = std::min(bounds.lockstep, plan.lockstep.makespan);
  plan.on_demand.lower_bound = std::min(bounds.on_demand, plan.on_demand.makespan);
  plan.oversize = std::move(samples.kept.oversize);
  return plan;
}

}  // namespace headrace
