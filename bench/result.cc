#include "bench/result.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/environment.h"

namespace headrace::bench {
namespace {

// Median over rounds of peer / ours, both from the same round.
double ratio(const Samples& peer, const Samples& ours) {
  std::vector<double> ratios;
  for (std::size_t round = 0; round < ours.ms.size(); ++round) {
    ratios.push_back(peer.ms[round] / ours.ms[round]);
  }
  return median(std::move(ratios));
}

}  // namespace

std::pair<double, double> spread(const std::vector<double>& values) {
  const double middle = median(values);
  return {quantile(values, 0.25) / middle, quantile(values, 0.75) / middle};
}

double quantile(std::vector<double> values, double fraction) {
  std::sort(values.begin(), values.end());
  const double place = fraction * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  const double part = place - static_cast<double>(below);
  return values[below] * (1 - part) + values[above] * part;
}

double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

std::string to_json(const CaseResult& result) {
  const Samples& ours = result.arms.front();
  nlohmann::ordered_json json;
  json["bench"] = result.bench;
  json["case"] = {{"ranks", result.ranks},
                  {"mib", rounded(result.mib)},
                  {"tensors", result.tensors},
                  {"dtype", result.dtype}};
  json["ms"] = rounded(median(ours.ms));
  json["peers"] = nlohmann::ordered_json::object();
  json["ratios"] = nlohmann::ordered_json::object();
  json["spread"] = nlohmann::ordered_json::object();
  for (const Samples& arm : result.arms) {
    if (&arm != &ours) {
      json["peers"][arm.name] = rounded(median(arm.ms));
      json["ratios"][arm.name] = rounded(ratio(arm, ours));
    }
    const auto [low, high] = spread(arm.ms);
    json["spread"][arm.name] = {rounded(low), rounded(high)};
  }
  if (!result.memory.empty()) {
    json["memory"] = result.memory;
    json["memory_unit"] = result.memory_unit;
  }
  json.update(environment());
  return json.dump();
}

std::string to_text(const CaseResult& result) {
  const Samples& ours = result.arms.front();
  std::string text =
      fmt::format("{} {:.0f} MiB {} in {} tensors, {} ranks: {:.2f} ms ({:.1f} GiB/s a rank)",
                  result.bench, result.mib, result.dtype, result.tensors, result.ranks,
                  median(ours.ms), result.mib / 1024 / (median(ours.ms) / 1e3));
  for (std::size_t i = 1; i < result.arms.size(); ++i) {
    text += fmt::format(", {} {:.2f} ms ({:.2f}x)", result.arms[i].name, median(result.arms[i].ms),
                        ratio(result.arms[i], ours));
  }
  for (const auto& [name, bytes] : result.memory) {
    text += fmt::format(", {} {:.2f} {}", name, bytes, result.memory_unit);
  }
  return text;
}

}  // namespace headrace::bench
