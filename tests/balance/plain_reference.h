#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "balance/first_fit.h"

/// What a common trainer does, written from its description as plainly as it reads: slow, and only
/// there to be compared with.
namespace headrace::balance_test {

/// Largest differencing with every partial partition as a list of `parts` lists.
inline Bins naive_differencing(std::span<const double> costs, std::size_t parts, bool equal_size) {
  const auto sum = [&](const std::vector<std::size_t>& items) {
    double total = 0.0;
    for (const std::size_t item : items) {
      total += costs[item];
    }
    return total;
  };
  const auto sorted = [&](Bins bins) {
    std::ranges::stable_sort(bins, [&](const auto& a, const auto& b) { return sum(a) > sum(b); });
    return bins;
  };
  std::vector<std::size_t> order(costs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  std::vector<Bins> partitions;
  const std::size_t row = equal_size ? parts : 1;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i % row == 0) {
      partitions.emplace_back(parts);
    }
    partitions.back()[i % row].push_back(order[i]);
  }
  while (partitions.size() > 1) {
    std::ranges::stable_sort(partitions, [&](const Bins& a, const Bins& b) {
      return sum(a.front()) - sum(a.back()) > sum(b.front()) - sum(b.back());
    });
    Bins joined = partitions[0];
    for (std::size_t part = 0; part < parts; ++part) {
      const auto& other = partitions[1][parts - 1 - part];
      joined[part].insert(joined[part].end(), other.begin(), other.end());
    }
    partitions.erase(partitions.begin());
    partitions.front() = sorted(std::move(joined));
  }
  return partitions.empty() ? Bins(parts) : partitions.front();
}

struct ReferencePlan {
  double lockstep = 0.0;  ///< makespans
  double on_demand = 0.0;
  std::size_t microbatches = 0;  ///< of a rank
  bool over_cap = false;
};

/// Equal numbers of samples on every rank by differencing; then ceil(total / cap) microbatches (of
/// the rank that needs most) by differencing. With `retry`, one more until the cap holds; without,
/// as it used to be, a microbatch may break it. Samples must divide by ranks.
inline ReferencePlan reference_plan(std::span<const std::int64_t> lengths,
                                    std::span<const double> costs, std::size_t ranks,
                                    std::int64_t cap, double per_microbatch, bool retry) {
  const Bins assigned = naive_differencing(costs, ranks, /*equal_size=*/true);
  ReferencePlan plan;
  plan.microbatches = 1;
  for (const auto& samples : assigned) {
    std::int64_t total = 0;
    double cost = 0.0;
    for (const std::size_t sample : samples) {
      total += lengths[sample];
      cost += costs[sample];
    }
    plan.on_demand = std::max(plan.on_demand, cost);
    plan.microbatches =
        std::max(plan.microbatches, static_cast<std::size_t>((total + cap - 1) / cap));
  }
  while (true) {
    std::vector<double> steps(plan.microbatches, 0.0);
    plan.over_cap = false;
    for (const auto& samples : assigned) {
      std::vector<double> own;
      for (const std::size_t sample : samples) {
        own.push_back(costs[sample]);
      }
      const Bins bins = naive_differencing(own, plan.microbatches, /*equal_size=*/false);
      for (std::size_t step = 0; step < bins.size(); ++step) {  // costliest first
        std::int64_t tokens = 0;
        double cost = bins[step].empty() ? 0.0 : per_microbatch;
        for (const std::size_t item : bins[step]) {
          tokens += lengths[samples[item]];
          cost += own[item];
        }
        plan.over_cap = plan.over_cap || tokens > cap;
        steps[step] = std::max(steps[step], cost);
      }
    }
    plan.lockstep = std::accumulate(steps.begin(), steps.end(), 0.0);
    if (!plan.over_cap || !retry) {
      break;
    }
    ++plan.microbatches;
  }
  plan.on_demand += per_microbatch * static_cast<double>(plan.microbatches);
  return plan;
}

}  // namespace headrace::balance_test
