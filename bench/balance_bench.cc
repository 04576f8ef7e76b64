#include "bench/balance_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>

#include "balance/first_fit.h"
#include "balance/karmarkar_karp.h"
#include "balance/strategies.h"
#include "balance/workload_bubbles.h"
#include "balance/workloads.h"
#include "base/clock.h"
#include "bench/environment.h"
#include "bench/result.h"

namespace headrace::bench {
namespace {

constexpr std::int64_t k_cap = 65'536;
constexpr std::int64_t k_differenced = 100'000;
constexpr std::array k_parts = {std::int64_t{8}, std::int64_t{64}};
constexpr std::int64_t k_packed = 1'000'000;
constexpr std::int64_t k_minibatch = 256;
constexpr int k_ranks = 8;
constexpr std::array k_samples_per_rank = {std::size_t{1}, std::size_t{2}, std::size_t{4},
                                           std::size_t{8}, std::size_t{16}};
constexpr std::uint64_t k_seed = 1;

std::vector<std::int64_t> lengths(std::int64_t count) {
  return workload_lengths(Workload::longalign, static_cast<std::size_t>(count), k_seed);
}

std::vector<double> timed(int rounds, const std::function<void()>& run) {
  std::vector<double> ms;
  for (int round = 0; round < rounds; ++round) {
    const std::int64_t begin = now_ns();
    run();
    ms.push_back(static_cast<double>(now_ns() - begin) / 1e6);
  }
  return ms;
}

template <class Value>
nlohmann::ordered_json object_of(const std::vector<std::pair<std::string, Value>>& members) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const auto& [name, value] : members) {
    object[name] = value;
  }
  return object;
}

}  // namespace

Result<std::vector<BalanceCase>> balance_bench(int rounds) {
  HEADRACE_TRY_ASSIGN(const CostModel cost, CostModel::preset("1.5B"));
  std::vector<BalanceCase> cases;
  std::vector<double> costs;
  for (const std::int64_t length : lengths(k_differenced)) {
    costs.push_back(cost.sample(length));
  }
  for (const std::int64_t parts : k_parts) {
    for (const PartSizes sizes : {PartSizes::free, PartSizes::equal}) {
      cases.push_back({.bench = "karmarkar_karp",
                       .variant = sizes == PartSizes::free ? "free" : "equal",
                       .sizes = {{"lengths", k_differenced}, {"parts", parts}},
                       .ms = timed(rounds, [&] {
                         karmarkar_karp(costs, static_cast<std::size_t>(parts), sizes);
                       })});
    }
  }
  const std::vector<std::int64_t> many = lengths(k_packed);
  cases.push_back({.bench = "first_fit",
                   .variant = "",
                   .sizes = {{"lengths", k_packed}, {"cap", k_cap}},
                   .ms = timed(rounds, [&] { (void)first_fit_decreasing(many, k_cap); })});
  const std::vector<std::int64_t> minibatch = lengths(k_minibatch);
  for (const Strategy strategy :
       {Strategy::none, Strategy::sorted, Strategy::verl_native, Strategy::verl_optimized,
        Strategy::lb_micro, Strategy::lb_mini}) {
    const BalanceOptions options{
        .world_size = k_ranks, .cap = k_cap, .strategy = strategy, .cost = cost};
    HEADRACE_TRY_ASSIGN(const BalancePlan plan, plan_minibatch(minibatch, options));
    cases.push_back({.bench = "plan_minibatch",
                     .variant = to_string(plan.strategy),
                     .sizes = {{"lengths", k_minibatch}, {"ranks", k_ranks}, {"cap", k_cap}},
                     .ms = timed(rounds, [&] { (void)plan_minibatch(minibatch, options); })});
  }
  return cases;
}

Result<std::vector<BubbleRow>> balance_bubbles() {
  HEADRACE_TRY_ASSIGN(const CostModel cost, CostModel::preset("1.5B"));
  std::vector<BubbleRow> rows;
  for (const std::size_t samples : k_samples_per_rank) {
    HEADRACE_TRY_ASSIGN(
        const std::vector<StrategyBubble> bubbles,
        workload_bubbles({.cost = cost, .cap = k_cap, .samples_per_rank = samples}));
    BubbleRow& row = rows.emplace_back(BubbleRow{.samples_per_rank = samples});
    for (const StrategyBubble& one : bubbles) {
      row.bubble.emplace_back(to_string(one.strategy), rounded(one.bubble));
      row.over_lb_mini.emplace_back(to_string(one.strategy), rounded(one.over_lb_mini));
    }
  }
  return rows;
}

std::string to_json(const BalanceCase& one) {
  nlohmann::ordered_json json;
  json["bench"] = one.bench;
  json["case"] = object_of(one.sizes);
  if (!one.variant.empty()) {
    json["case"]["variant"] = one.variant;
  }
  json["ms"] = rounded(median(one.ms));
  const auto [low, high] = spread(one.ms);
  json["spread"] = {{"headrace", {rounded(low), rounded(high)}}};
  json.update(environment());
  return json.dump();
}

std::string to_text(const BalanceCase& one) {
  std::string text = one.bench + (one.variant.empty() ? "" : " " + one.variant);
  for (const auto& [name, value] : one.sizes) {
    text += fmt::format(", {} {}", value, name);
  }
  const auto [low, high] = spread(one.ms);
  return fmt::format("{}: {:.3f} ms (quartiles {:.2f} to {:.2f} of it)", text, median(one.ms), low,
                     high);
}

std::string to_json(const BubbleRow& row) {
  nlohmann::ordered_json json;
  json["bench"] = "balance_bubbles";
  json["case"] = {{"workload", to_string(Workload::longalign)},
                  {"ranks", k_ranks},
                  {"cap", k_cap},
                  {"samples_per_rank", row.samples_per_rank}};
  json["bubble"] = object_of(row.bubble);
  json["makespan_over_lb_mini"] = object_of(row.over_lb_mini);
  json.update(environment());
  return json.dump();
}

std::string to_text(const BubbleRow& row) {
  std::string text = fmt::format("bubble, {} samples a rank:", row.samples_per_rank);
  for (std::size_t i = 0; i < row.bubble.size(); ++i) {
    text += fmt::format("{} {} {:.0f} % ({:.2f}x)", i == 0 ? "" : ",", row.bubble[i].first,
                        100 * row.bubble[i].second, row.over_lb_mini[i].second);
  }
  return text;
}

}  // namespace headrace::bench
