#include "balance/lower_bound.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include "balance/longest_first.h"

namespace headrace {
namespace {

/// Pieces above cap / (q + 1) are looked at for q up to this; more of them seldom decide.
constexpr std::int64_t k_most_together = 8;

std::vector<double> group_costs(const PackingProblem& problem) {
  if (problem.groups.empty()) {
    return {problem.costs.begin(), problem.costs.end()};
  }
  std::vector<double> costs(std::ranges::max(problem.groups) + 1, 0.0);
  for (std::size_t piece = 0; piece < problem.groups.size(); ++piece) {
    costs[problem.groups[piece]] += problem.costs[piece];
  }
  return costs;
}

/// Of the j * ranks + 1 costliest some rank has j + 1, which cost at least as much as the cheapest
/// j + 1 of them.
double crowded_rank(std::vector<double> costs, std::size_t ranks) {
  std::ranges::sort(costs, std::greater<>());
  std::vector<double> before(costs.size() + 1, 0.0);  // sum of the costs before each
  std::inclusive_scan(costs.begin(), costs.end(), before.begin() + 1);
  double bound = 0.0;
  for (std::size_t j = 0; j * ranks < costs.size(); ++j) {
    const std::size_t end = j * ranks + 1;
    bound = std::max(bound, before[end] - before[end - (j + 1)]);
  }
  return bound;
}

/// Steps that begin with the costliest of the pieces of which only `together` fit a microbatch;
/// `order` by falling cost.
double crowded_steps(const PackingProblem& problem, std::span<const std::size_t> order,
                     std::int64_t together) {
  const std::size_t a_step = problem.ranks * static_cast<std::size_t>(together);
  double bound = 0.0;
  std::size_t place = 0;  // of the piece within its step
  for (const std::size_t piece : order) {
    if (problem.sizes[piece] > problem.cap / (together + 1)) {
      bound += place == 0 ? problem.costs[piece] + problem.per_microbatch : 0.0;
      place = (place + 1) % a_step;
    }
  }
  return bound;
}

}  // namespace

std::size_t fewest_microbatches(std::span<const std::int64_t> sizes, std::int64_t cap) {
  std::size_t full = 0;
  std::size_t large = 0;
  std::int64_t rest = 0;  // of the total, below the cap: the total itself may not fit 63 bits
  for (const std::int64_t size : sizes) {
    large += size > cap - size ? 1 : 0;
    if (size >= cap - rest) {
      ++full;
      rest -= cap - size;
    } else {
      rest += size;
    }
  }
  return std::max(full + (rest > 0 ? 1 : 0), large);
}

LowerBounds lower_bounds(const PackingProblem& problem) {
  const std::vector<std::size_t> order = falling(problem.costs);
  const std::size_t fewest = fewest_microbatches(problem.sizes, problem.cap);
  const std::size_t crowded = (fewest + problem.ranks - 1) / problem.ranks;  // on some rank
  double total = problem.per_microbatch * static_cast<double>(fewest);
  double many = problem.per_microbatch * static_cast<double>(crowded);
  for (std::size_t place = 0; place < order.size(); ++place) {
    total += problem.costs[order[place]];
    many += place + crowded >= order.size() ? problem.costs[order[place]] : 0.0;
  }
  LowerBounds bounds;
  bounds.on_demand =
      std::max({total / static_cast<double>(problem.ranks), many,
                crowded_rank(group_costs(problem), problem.ranks) + problem.per_microbatch});
  bounds.lockstep = bounds.on_demand;
  for (std::int64_t together = 1; together <= k_most_together; ++together) {
    bounds.lockstep = std::max(bounds.lockstep, crowded_steps(problem, order, together));
  }
  return bounds;
}

}  // namespace headrace
