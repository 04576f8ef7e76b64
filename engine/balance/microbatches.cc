#include "balance/microbatches.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>

#include "balance/karmarkar_karp.h"
#include "balance/longest_first.h"
#include "balance/lower_bound.h"

namespace headrace {
namespace {

Bins first_fit_of(const PackingProblem& problem, const std::vector<std::size_t>& pieces) {
  std::vector<std::int64_t> sizes;
  sizes.reserve(pieces.size());
  for (const std::size_t piece : pieces) {
    sizes.push_back(problem.sizes[piece]);
  }
  Bins bins = first_fit_decreasing(sizes, problem.cap).value();  // sizes are within the cap
  for (auto& bin : bins) {
    for (std::size_t& item : bin) {
      item = pieces[item];
    }
  }
  return bins;
}

void costliest_first(const PackingProblem& problem, Bins& microbatches) {
  const std::vector<double> load = loads(problem.costs, microbatches);
  Bins sorted;
  sorted.reserve(microbatches.size());
  for (const std::size_t bin : falling(load)) {
    sorted.push_back(std::move(microbatches[bin]));
  }
  microbatches = std::move(sorted);
}

bool within_cap(const PackingProblem& problem, const Bins& bins) {
  return std::ranges::all_of(bins, [&](const std::vector<std::size_t>& bin) {
    std::int64_t room = problem.cap;  // counted down: the sum itself may not fit 63 bits
    for (const std::size_t piece : bin) {
      if (problem.sizes[piece] > room) {
        return false;
      }
      room -= problem.sizes[piece];
    }
    return true;
  });
}

Bins by_differencing(const PackingProblem& problem, const std::vector<std::size_t>& pieces,
                     std::size_t count) {
  std::vector<double> costs;
  costs.reserve(pieces.size());
  for (const std::size_t piece : pieces) {
    costs.push_back(problem.costs[piece]);
  }
  Bins bins = karmarkar_karp(costs, count, PartSizes::free);
  for (auto& bin : bins) {
    for (std::size_t& item : bin) {
      item = pieces[item];
    }
  }
  return bins;
}

/// Each piece, by falling cost, into the cheapest bin with room. Nothing where one finds no room.
std::optional<Bins> by_cheapest_bin(const PackingProblem& problem, std::vector<std::size_t> pieces,
                                    std::size_t count) {
  std::ranges::sort(pieces, [&](std::size_t a, std::size_t b) {
    return problem.costs[a] != problem.costs[b] ? problem.costs[a] > problem.costs[b] : a < b;
  });
  Bins bins(count);
  std::vector<double> load(count, 0.0);
  std::vector<std::int64_t> room(count, problem.cap);
  for (const std::size_t piece : pieces) {
    std::optional<std::size_t> best;
    for (std::size_t bin = 0; bin < count; ++bin) {
      if (room[bin] >= problem.sizes[piece] && (!best || load[bin] < load[*best])) {
        best = bin;
      }
    }
    if (!best) {
      return std::nullopt;
    }
    bins[*best].push_back(piece);
    load[*best] += problem.costs[piece];
    room[*best] -= problem.sizes[piece];
  }
  return bins;
}

}  // namespace

Bins levelled_microbatches(const PackingProblem& problem, const std::vector<std::size_t>& pieces,
                           std::size_t count) {
  Bins bins;
  if (pieces.size() * count <= problem.placement_trials) {
    bins = by_differencing(problem, pieces, count);
    if (!within_cap(problem, bins)) {
      bins = by_cheapest_bin(problem, pieces, count).value_or(Bins());
    }
  }
  if (bins.empty()) {
    bins = first_fit_of(problem, pieces);
  }
  bins.resize(std::max(count, bins.size()));
  costliest_first(problem, bins);
  return bins;
}

Bins split_into(const PackingProblem& problem, Bins microbatches, std::size_t count) {
  const std::size_t wanted = std::min(count, microbatches.size());
  while (filled(microbatches) < wanted) {
    costliest_first(problem, microbatches);  // fillers come last
    const auto several = std::ranges::find_if(
        microbatches, [](const std::vector<std::size_t>& pieces) { return pieces.size() > 1; });
    if (several == microbatches.end()) {
      break;
    }
    Bins halves = by_differencing(problem, *several, 2);
    *several = std::move(halves.front());
    microbatches.back() = std::move(halves.back());
  }
  costliest_first(problem, microbatches);
  return microbatches;
}

Bins first_fit_microbatches(const PackingProblem& problem, const std::vector<std::size_t>& pieces) {
  Bins bins = first_fit_of(problem, pieces);
  if (bins.size() < problem.min_microbatches) {
    return levelled_microbatches(problem, pieces, problem.min_microbatches);
  }
  costliest_first(problem, bins);
  return bins;
}

Bins single_microbatches(const PackingProblem& problem, const std::vector<std::size_t>& pieces) {
  Bins bins;
  bins.reserve(pieces.size());
  for (const std::size_t piece : pieces) {
    bins.push_back({piece});
  }
  costliest_first(problem, bins);
  bins.resize(std::max(bins.size(), problem.min_microbatches));
  return bins;
}

Packing levelled_packing(const PackingProblem& problem, const RankPieces& ranks) {
  std::size_t count = problem.min_microbatches;
  for (const auto& pieces : ranks) {
    count = std::max(count, first_fit_of(problem, pieces).size());
  }
  Packing packing;
  packing.reserve(ranks.size());
  for (const auto& pieces : ranks) {
    packing.push_back(levelled_microbatches(problem, pieces, count));
  }
  return packing;
}

std::optional<Packing> differenced_packing(const PackingProblem& problem, const RankPieces& ranks) {
  std::size_t most = 0;
  std::size_t count = std::max<std::size_t>(problem.min_microbatches, 1);
  for (const auto& pieces : ranks) {
    std::vector<std::int64_t> sizes;
    sizes.reserve(pieces.size());
    for (const std::size_t piece : pieces) {
      sizes.push_back(problem.sizes[piece]);
    }
    most = std::max(most, pieces.size());
    count = std::max(count, fewest_microbatches(sizes, problem.cap));
  }
  std::size_t trials = problem.placement_trials;
  for (; count <= std::max(most, problem.min_microbatches); ++count) {
    if (problem.costs.size() * count > trials) {
      return std::nullopt;
    }
    trials -= problem.costs.size() * count;
    Packing packing;
    for (const auto& pieces : ranks) {
      Bins bins = by_differencing(problem, pieces, count);
      if (!within_cap(problem, bins)) {
        break;
      }
      packing.push_back(std::move(bins));
    }
    if (packing.size() == ranks.size()) {
      return packing;
    }
  }
  return std::nullopt;
}

Packing single_packing(const PackingProblem& problem, const RankPieces& ranks) {
  Packing packing;
  packing.reserve(ranks.size());
  for (const auto& pieces : ranks) {
    packing.push_back(single_microbatches(problem, pieces));
  }
  return packing;
}

std::size_t filled(const Bins& microbatches) {
  return static_cast<std::size_t>(
      std::ranges::count_if(microbatches, [](const auto& pieces) { return !pieces.empty(); }));
}

}  // namespace headrace
