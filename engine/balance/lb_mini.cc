#include <algorithm>
#include <iterator>
#include <utility>

#include "balance/longest_first.h"
#include "balance/microbatches.h"
#include "balance/packing.h"
#include "balance/rank_assignment.h"

namespace headrace {
namespace {

/// A packing with its makespan when no rank waits for another before the end.
struct Candidate {
  Packing packing;
  double makespan = 0.0;
};

Candidate pack_ranks(const PackingProblem& problem, const RankPieces& ranks) {
  Candidate candidate;
  for (const auto& pieces : ranks) {
    Bins microbatches = first_fit_microbatches(problem, pieces);
    double cost = problem.per_microbatch * static_cast<double>(filled(microbatches));
    for (const std::size_t piece : pieces) {
      cost += problem.costs[piece];
    }
    candidate.makespan = std::max(candidate.makespan, cost);
    candidate.packing.push_back(std::move(microbatches));
  }
  return candidate;
}

/// What each piece costs together with the share of a microbatch that it fills.
std::vector<double> costs_with_share(const PackingProblem& problem) {
  std::vector<double> costs(problem.costs.begin(), problem.costs.end());
  for (std::size_t piece = 0; piece < costs.size(); ++piece) {
    costs[piece] += problem.per_microbatch * static_cast<double>(problem.sizes[piece]) /
                    static_cast<double>(problem.cap);
  }
  return costs;
}

/// Full microbatches by longest-first: the fewest of them, which pays where each costs much by
/// itself.
RankPieces by_microbatch(const PackingProblem& problem) {
  const Bins microbatches = first_fit_decreasing(problem.sizes, problem.cap).value();
  std::vector<double> costs = loads(problem.costs, microbatches);
  for (double& cost : costs) {
    cost += problem.per_microbatch;
  }
  RankPieces ranks(problem.ranks);
  const Bins assigned =
      exchange(costs, longest_first(costs, problem.ranks), problem.rounds(costs.size()));
  for (std::size_t rank = 0; rank < problem.ranks; ++rank) {
    for (const std::size_t microbatch : assigned[rank]) {
      ranks[rank].insert(ranks[rank].end(), microbatches[microbatch].begin(),
                         microbatches[microbatch].end());
    }
    std::ranges::sort(ranks[rank]);
  }
  return ranks;
}

double makespan_of_singles(const PackingProblem& problem, const RankPieces& ranks) {
  double most = 0.0;
  for (const auto& pieces : ranks) {
    double cost = 0.0;
    for (const std::size_t piece : pieces) {
      cost += problem.costs[piece] + problem.per_microbatch;
    }
    most = std::max(most, cost);
  }
  return most;
}

}  // namespace

Packing pack_lb_mini(const PackingProblem& problem) {
  std::vector<RankPieces> assignments = levelled_ranks(problem, costs_with_share(problem));
  if (problem.per_microbatch > 0.0) {
    if (problem.may_move()) {
      assignments.push_back(by_microbatch(problem));
    }
    std::ranges::move(levelled_ranks(problem, problem.costs), std::back_inserter(assignments));
  }
  assignments.push_back(by_equal_differencing(problem, problem.costs));
  // Among equals the first wins.
  Candidate best = pack_ranks(problem, assignments.front());
  const auto offer = [&](const RankPieces& ranks) {
    if (Candidate other = pack_ranks(problem, ranks); other.makespan < best.makespan) {
      best = std::move(other);
    }
  };
  std::for_each(assignments.begin() + 1, assignments.end(), offer);
  // What `none` gives each rank, packed: never costlier than `none`, for packing only joins
  // microbatches.
  const RankPieces turns = dealt_in_turns(problem, groups_in_order(problem));
  if (makespan_of_singles(problem, turns) < best.makespan) {
    offer(turns);
  }
  return std::move(best.packing);
}

}  // namespace headrace
