#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "balance/karmarkar_karp.h"
#include "balance/lockstep_steps.h"
#include "balance/longest_first.h"
#include "balance/microbatches.h"
#include "balance/packing.h"
#include "balance/rank_assignment.h"
#include "base/checked_math.h"

namespace headrace {
namespace {

/// First-fit decreasing bins in step order: always possible, for the number of steps comes from it.
LockstepSteps by_first_fit(const PackingProblem& problem, const Bins& bins, std::size_t steps) {
  LockstepSteps result(problem, steps);
  for (std::size_t bin = 0; bin < bins.size(); ++bin) {
    for (const std::size_t piece : bins[bin]) {
      result.add(bin, piece);
    }
  }
  return result.ordered();
}

/// All bins levelled alike: each piece, by falling cost, into the cheapest bin with room. Nothing
/// where a piece finds no room.
std::optional<LockstepSteps> by_level_bins(const PackingProblem& problem,
                                           const std::vector<std::size_t>& order,
                                           std::size_t steps) {
  LockstepSteps result(problem, steps);
  for (const std::size_t piece : order) {
    std::optional<std::size_t> best;
    for (std::size_t bin = 0; bin < result.bins(); ++bin) {
      if (result.fits(bin, piece) && (!best || result.load(bin) < result.load(*best))) {
        best = bin;
      }
    }
    if (!best) {
      return std::nullopt;
    }
    result.add(*best, piece);
  }
  return result.ordered();
}

/// Step after step: the costliest piece left (or an equal share of all that is left, where that is
/// more) sets the level, and the step is filled up to it. The last step takes the rest. Nothing
/// where it has no room.
std::optional<LockstepSteps> by_filled_steps(const PackingProblem& problem,
                                             std::vector<std::size_t> left, std::size_t steps) {
  LockstepSteps result(problem, steps);
  for (std::size_t step = 0; step < steps && !left.empty(); ++step) {
    double total = 0.0;
    for (const std::size_t piece : left) {
      total += problem.costs[piece];
    }
    const bool last = step + 1 == steps;
    const double share = total / static_cast<double>(problem.ranks * (steps - step));
    const double level = std::max(problem.costs[left.front()], share);
    std::vector<std::size_t> rest;
    for (const std::size_t piece : left) {
      std::optional<std::size_t> best;
      for (std::size_t bin = step * problem.ranks; bin < (step + 1) * problem.ranks; ++bin) {
        const bool below = last || result.load(bin) + problem.costs[piece] <= level;
        if (below && result.fits(bin, piece) && (!best || result.load(bin) < result.load(*best))) {
          best = bin;
        }
      }
      if (best) {
        result.add(*best, piece);
      } else {
        rest.push_back(piece);
      }
    }
    left = std::move(rest);
  }
  if (!left.empty()) {
    return std::nullopt;
  }
  return result;
}

/// One piece a microbatch, in steps of like cost (`order` by falling cost): never costlier than
/// `none`.
LockstepSteps by_turns(const PackingProblem& problem, const std::vector<std::size_t>& order) {
  const std::size_t steps = (order.size() + problem.ranks - 1) / problem.ranks;
  LockstepSteps result(problem, steps);
  for (std::size_t i = 0; i < order.size(); ++i) {
    result.add(i, order[i]);
  }
  return result;
}

/// All bins levelled by differencing. Nothing where a bin breaks the cap.
std::optional<LockstepSteps> by_differencing(const PackingProblem& problem, std::size_t steps) {
  LockstepSteps result(problem, steps);
  const Bins bins = karmarkar_karp(problem.costs, result.bins(), PartSizes::free);
  for (std::size_t bin = 0; bin < bins.size(); ++bin) {
    for (const std::size_t piece : bins[bin]) {
      if (!result.fits(bin, piece)) {
        return std::nullopt;
      }
      result.add(bin, piece);
    }
  }
  return result.ordered();
}

/// Packings that may give any piece to any rank.
std::vector<LockstepSteps> free_candidates(const PackingProblem& problem) {
  const Bins first_fit = first_fit_decreasing(problem.sizes, problem.cap).value();
  const std::vector<std::size_t> order = falling(problem.costs);
  const std::size_t steps =
      std::max((first_fit.size() + problem.ranks - 1) / problem.ranks, problem.min_microbatches);
  std::vector<LockstepSteps> candidates;
  const auto offer = [&](std::optional<LockstepSteps> candidate) {
    if (candidate) {
      candidates.push_back(*std::move(candidate));
    }
  };
  if (order.size() * (steps + 1) * problem.ranks <= problem.placement_trials) {
    offer(by_level_bins(problem, order, steps));
    offer(by_filled_steps(problem, order, steps));
    offer(by_filled_steps(problem, order, steps + 1));
    offer(by_differencing(problem, steps));
  }
  const RankPieces ranks = by_equal_differencing(problem, problem.costs);
  offer(LockstepSteps(problem, levelled_packing(problem, ranks)));
  if (const auto packing = differenced_packing(problem, ranks)) {
    offer(LockstepSteps(problem, *packing));
  }
  offer(by_first_fit(problem, first_fit, steps));
  offer(by_turns(problem, order));
  return candidates;
}

/// Packings that level ranks first and each rank's microbatches then: they keep groups together and
/// counts equal.
std::vector<LockstepSteps> rank_candidates(const PackingProblem& problem) {
  std::vector<RankPieces> assignments = levelled_ranks(problem, problem.costs);
  assignments.push_back(by_equal_differencing(problem, problem.costs));
  assignments.push_back(dealt_in_turns(problem, groups_in_order(problem)));
  std::vector<LockstepSteps> candidates;
  for (const RankPieces& ranks : assignments) {
    candidates.emplace_back(problem, levelled_packing(problem, ranks));
    candidates.emplace_back(problem, single_packing(problem, ranks));
  }
  return candidates;
}

}  // namespace

Packing pack_lb_micro(const PackingProblem& problem) {
  // Among equals the first wins: the one that spreads pieces over most bins.
  std::vector<LockstepSteps> candidates =
      problem.may_move() ? free_candidates(problem) : rank_candidates(problem);
  std::size_t trials = problem.exchange_trials;
  std::optional<std::size_t> best;
  double least = 0.0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    trials -= std::min(trials, candidates[i].improve(trials));
    const double makespan = candidates[i].makespan();
    if (!best || makespan < least) {
      best = i;
      least = makespan;
    }
  }
  Packing packing = candidates[*best].packing();
  for (Bins& microbatches : packing) {
    if (filled(microbatches) < problem.min_microbatches) {
      microbatches = split_into(problem, std::move(microbatches), problem.min_microbatches);
    }
  }
  return packing;
}

}  // namespace headrace
