#include "balance/balance_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/digest.h"
#include "base/named.h"

namespace headrace {
namespace {

constexpr std::array k_strategies = {Strategy::none,        Strategy::sorted,
                                     Strategy::lb_micro,    Strategy::lb_mini,
                                     Strategy::verl_native, Strategy::verl_optimized};

std::size_t steps(const BalancePlan& plan) {
  std::size_t most = 0;
  for (const auto& microbatches : plan.ranks) {
    most = std::max(most, microbatches.size());
  }
  return most;
}

Prediction predict(double makespan, double total, std::size_t ranks, double lower_bound) {
  const double work = makespan * static_cast<double>(ranks);
  return {.makespan = makespan,
          .bubble = work > 0.0 ? std::max(1.0 - total / work, 0.0) : 0.0,
          .lower_bound = lower_bound};
}

}  // namespace

const char* to_string(Strategy strategy) {
  switch (strategy) {
    case Strategy::none:
      return "none";
    case Strategy::sorted:
      return "sorted";
    case Strategy::lb_micro:
      return "lb-micro";
    case Strategy::lb_mini:
      return "lb-mini";
    case Strategy::verl_native:
      return "verl-native";
    case Strategy::verl_optimized:
      return "verl-optimized";
  }
  return "unknown";
}

Result<Strategy> parse_strategy(std::string_view name) {
  if (const auto strategy = named(k_strategies, name)) {
    return *strategy;
  }
  return operation_error(fmt::format("there is no balancing strategy '{}'; known are {}", name,
                                     names_of(k_strategies)));
}

std::span<const Strategy> strategies() { return k_strategies; }

const char* to_string(Mode mode) { return mode == Mode::lockstep ? "lockstep" : "on-demand"; }

Result<Mode> parse_mode(std::string_view name) {
  if (const auto mode = named(std::array{Mode::lockstep, Mode::on_demand}, name)) {
    return *mode;
  }
  return operation_error(
      fmt::format("there is no mode '{}'; known are lockstep and on-demand", name));
}

bool BalancePlan::equal_counts() const {
  return std::ranges::all_of(
      ranks, [&](const auto& microbatches) { return microbatches.size() == ranks.front().size(); });
}

std::uint64_t BalancePlan::digest(std::span<const std::int64_t> keys) const {
  Digest digest;
  digest.add_word(ranks.size());
  for (const auto& microbatches : ranks) {
    digest.add_word(microbatches.size());
    for (const Microbatch& microbatch : microbatches) {
      digest.add_word(microbatch.pieces.size());
      for (const SamplePiece& piece : microbatch.pieces) {
        digest.add_word(piece.sample)
            .add_word(static_cast<std::uint64_t>(piece.begin))
            .add_word(static_cast<std::uint64_t>(piece.tokens));
      }
    }
  }
  digest.add_word(keys.size());
  for (const std::int64_t key : keys) {
    digest.add_word(static_cast<std::uint64_t>(key));
  }
  return digest.value();
}

BalancePlan padded_for_lockstep(BalancePlan plan) {
  const std::size_t count = steps(plan);
  for (auto& microbatches : plan.ranks) {
    microbatches.resize(count);
  }
  return plan;
}

BalancePlan with_predictions(BalancePlan plan, double least_gain) {
  std::vector<double> step_costs(steps(plan), 0.0);
  plan.rank_costs.clear();
  plan.tokens = 0;
  for (const auto& microbatches : plan.ranks) {
    double rank_cost = 0.0;
    for (std::size_t step = 0; step < microbatches.size(); ++step) {
      rank_cost += microbatches[step].cost;
      step_costs[step] = std::max(step_costs[step], microbatches[step].cost);
      plan.tokens += microbatches[step].tokens;
    }
    plan.rank_costs.push_back(rank_cost);
  }
  const double total = std::accumulate(plan.rank_costs.begin(), plan.rank_costs.end(), 0.0);
  plan.lockstep = predict(std::accumulate(step_costs.begin(), step_costs.end(), 0.0), total,
                          plan.ranks.size(), plan.lockstep.lower_bound);
  plan.on_demand = predict(*std::ranges::max_element(plan.rank_costs), total, plan.ranks.size(),
                           plan.on_demand.lower_bound);
  plan.recommendation = plan.on_demand.makespan < (1.0 - least_gain) * plan.lockstep.makespan
                            ? Mode::on_demand
                            : Mode::lockstep;
  return plan;
}

}  // namespace headrace
