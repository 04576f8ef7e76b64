#include <algorithm>
#include <numeric>
#include <utility>

#include "balance/longest_first.h"
#include "balance/packing.h"

namespace headrace {
namespace {

/// First-fit decreasing of some of the pieces. Sizes are within the cap, so it cannot fail.
Bins first_fit_of(const PackingProblem& problem, const std::vector<std::size_t>& pieces) {
  std::vector<std::size_t> ordered = pieces;
  std::ranges::sort(ordered);  // ties by piece, not by place in the list
  std::vector<std::int64_t> sizes;
  sizes.reserve(ordered.size());
  for (const std::size_t piece : ordered) {
    sizes.push_back(problem.sizes[piece]);
  }
  Bins bins = first_fit_decreasing(sizes, problem.cap).value();
  for (auto& bin : bins) {
    for (std::size_t& item : bin) {
      item = ordered[item];
    }
  }
  return bins;
}

/// Costliest microbatch first: memory peaks at once, and where lockstep runs the plan with fillers
/// the steps match as well as any order allows.
void costliest_first(const PackingProblem& problem, Bins& microbatches) {
  const std::vector<double> load = loads(problem.costs, microbatches);
  Bins sorted;
  sorted.reserve(microbatches.size());
  for (const std::size_t bin : falling(load)) {
    sorted.push_back(std::move(microbatches[bin]));
  }
  microbatches = std::move(sorted);
}

/// A packing with its makespan when no rank waits for another before the end.
struct Candidate {
  Packing packing;
  double makespan = 0.0;
};

Candidate pack_ranks(const PackingProblem& problem, const Bins& ranks) {
  Candidate candidate;
  for (const auto& pieces : ranks) {
    Bins microbatches = first_fit_of(problem, pieces);
    costliest_first(problem, microbatches);
    double cost = problem.per_microbatch * static_cast<double>(microbatches.size());
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

/// Pieces by longest-first.
Candidate by_piece(const PackingProblem& problem, std::span<const double> costs) {
  return pack_ranks(problem,
                    exchange(costs, longest_first(costs, problem.ranks), problem.exchange_rounds));
}

/// Pieces dealt out in turns by falling cost: another start for the local search, which ends
/// elsewhere.
Candidate by_dealing(const PackingProblem& problem, std::span<const double> costs) {
  const std::vector<std::size_t> order = falling(costs);
  Bins ranks(problem.ranks);
  for (std::size_t i = 0; i < order.size(); ++i) {
    ranks[i % problem.ranks].push_back(order[i]);
  }
  return pack_ranks(problem, exchange(costs, std::move(ranks), problem.exchange_rounds));
}

/// Full microbatches by longest-first: the fewest of them, which pays where each costs much by
/// itself.
Candidate by_microbatch(const PackingProblem& problem) {
  const Bins microbatches = first_fit_decreasing(problem.sizes, problem.cap).value();
  std::vector<double> costs = loads(problem.costs, microbatches);
  for (double& cost : costs) {
    cost += problem.per_microbatch;
  }
  Bins ranks(problem.ranks);
  const Bins assigned =
      exchange(costs, longest_first(costs, problem.ranks), problem.exchange_rounds);
  for (std::size_t rank = 0; rank < problem.ranks; ++rank) {
    for (const std::size_t microbatch : assigned[rank]) {
      ranks[rank].insert(ranks[rank].end(), microbatches[microbatch].begin(),
                         microbatches[microbatch].end());
    }
  }
  return pack_ranks(problem, ranks);
}

/// What `none` gives each rank, packed. Never costlier than `none`, for packing only joins
/// microbatches.
Candidate by_turns(const PackingProblem& problem) {
  Bins ranks(problem.ranks);
  for (std::size_t piece = 0; piece < problem.costs.size(); ++piece) {
    ranks[piece % problem.ranks].push_back(piece);
  }
  return pack_ranks(problem, ranks);
}

double makespan_of_none(const PackingProblem& problem) {
  std::vector<double> load(problem.ranks, 0.0);
  for (std::size_t piece = 0; piece < problem.costs.size(); ++piece) {
    load[piece % problem.ranks] += problem.costs[piece] + problem.per_microbatch;
  }
  return *std::ranges::max_element(load);
}

}  // namespace

Packing pack_lb_mini(const PackingProblem& problem) {
  const std::vector<double> costs = costs_with_share(problem);
  Candidate best = by_piece(problem, costs);
  if (Candidate other = by_dealing(problem, costs); other.makespan < best.makespan) {
    best = std::move(other);
  }
  if (problem.per_microbatch > 0.0) {
    if (Candidate other = by_microbatch(problem); other.makespan < best.makespan) {
      best = std::move(other);
    }
  }
  if (makespan_of_none(problem) < best.makespan) {
    if (Candidate other = by_turns(problem); other.makespan < best.makespan) {
      best = std::move(other);
    }
  }
  return std::move(best.packing);
}

}  // namespace headrace
