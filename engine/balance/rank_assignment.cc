#include "balance/rank_assignment.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

#include "balance/karmarkar_karp.h"
#include "balance/longest_first.h"

namespace headrace {
namespace {

std::size_t group_of(const PackingProblem& problem, std::size_t piece) {
  return problem.groups.empty() ? piece : problem.groups[piece];
}

std::size_t group_count(const PackingProblem& problem) {
  return problem.groups.empty() ? problem.costs.size() : std::ranges::max(problem.groups) + 1;
}

/// What ranks are levelled by: cost and number of pieces of each group.
struct Groups {
  std::vector<double> costs;
  std::vector<std::size_t> counts;
};

Groups groups_with(const PackingProblem& problem, std::span<const double> costs) {
  const std::size_t count = group_count(problem);
  Groups result{.costs = std::vector<double>(count, 0.0),
                .counts = std::vector<std::size_t>(count, 0)};
  for (std::size_t piece = 0; piece < costs.size(); ++piece) {
    const std::size_t group = group_of(problem, piece);
    result.costs[group] += costs[piece];
    ++result.counts[group];
  }
  return result;
}

RankPieces pieces_of(const PackingProblem& problem, const Bins& ranks) {
  std::vector<std::size_t> rank_of(group_count(problem));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const std::size_t group : ranks[rank]) {
      rank_of[group] = rank;
    }
  }
  RankPieces result(ranks.size());
  for (std::size_t piece = 0; piece < problem.costs.size(); ++piece) {
    result[rank_of[group_of(problem, piece)]].push_back(piece);
  }
  return result;
}

/// Groups of most pieces first, each to the rank with the fewest pieces, ties by least cost.
Bins by_count(const Groups& groups, std::size_t ranks) {
  std::vector<std::size_t> order(groups.costs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return std::tuple(groups.counts[b], groups.costs[b], a) <
           std::tuple(groups.counts[a], groups.costs[a], b);
  });
  using Load = std::tuple<std::size_t, double, std::size_t>;  // pieces, cost, rank
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    least.emplace(0, 0.0, rank);
  }
  Bins result(ranks);
  for (const std::size_t group : order) {
    const auto [count, cost, rank] = least.top();
    least.pop();
    result[rank].push_back(group);
    least.emplace(count + groups.counts[group], cost + groups.costs[group], rank);
  }
  return result;
}

Bins in_turns(std::span<const std::size_t> order, std::size_t ranks) {
  Bins result(ranks);
  for (std::size_t i = 0; i < order.size(); ++i) {
    result[i % ranks].push_back(order[i]);
  }
  return result;
}

}  // namespace

RankPieces dealt_in_turns(const PackingProblem& problem, std::span<const std::size_t> order) {
  if (!problem.equal_counts || problem.groups.empty()) {
    return pieces_of(problem, in_turns(order, problem.ranks));
  }
  const std::vector<std::size_t> counts = groups_with(problem, problem.costs).counts;
  using Load = std::pair<std::size_t, std::size_t>;  // pieces, rank
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least;
  for (std::size_t rank = 0; rank < problem.ranks; ++rank) {
    least.emplace(0, rank);
  }
  Bins ranks(problem.ranks);
  for (const std::size_t group : order) {
    const auto [count, rank] = least.top();
    least.pop();
    ranks[rank].push_back(group);
    least.emplace(count + counts[group], rank);
  }
  return pieces_of(problem, ranks);
}

RankPieces by_equal_differencing(const PackingProblem& problem, std::span<const double> costs) {
  const Groups groups = groups_with(problem, costs);
  const bool same_count =
      std::ranges::adjacent_find(groups.counts, std::not_equal_to<>()) == groups.counts.end();
  const bool by_differencing = !problem.equal_counts || same_count;
  return pieces_of(problem, by_differencing
                                ? karmarkar_karp(groups.costs, problem.ranks, PartSizes::equal)
                                : by_count(groups, problem.ranks));
}

std::vector<RankPieces> levelled_ranks(const PackingProblem& problem,
                                       std::span<const double> costs) {
  const Groups groups = groups_with(problem, costs);
  const std::size_t rounds = problem.rounds(groups.costs.size());
  std::vector<RankPieces> result;
  const auto offer = [&](Bins ranks) {
    const std::span<const std::size_t> kept = problem.equal_counts
                                                  ? std::span<const std::size_t>(groups.counts)
                                                  : std::span<const std::size_t>();
    result.push_back(pieces_of(problem, exchange(groups.costs, std::move(ranks), rounds, kept)));
  };
  if (problem.equal_counts) {
    if (problem.groups.empty()) {
      offer(karmarkar_karp(groups.costs, problem.ranks, PartSizes::equal));
    }
    offer(by_count(groups, problem.ranks));
    return result;
  }
  offer(longest_first(groups.costs, problem.ranks));
  if (groups.costs.size() * problem.ranks <= problem.placement_trials) {
    offer(karmarkar_karp(groups.costs, problem.ranks, PartSizes::free));
  }
  offer(karmarkar_karp(groups.costs, problem.ranks, PartSizes::equal));
  // Another start for the local search, which ends elsewhere.
  offer(in_turns(falling(groups.costs), problem.ranks));
  return result;
}

std::vector<std::size_t> groups_in_order(const PackingProblem& problem) {
  std::vector<std::size_t> order(group_count(problem));
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

std::vector<std::size_t> groups_by_cost(const PackingProblem& problem) {
  return falling(groups_with(problem, problem.costs).costs);
}

}  // namespace headrace
