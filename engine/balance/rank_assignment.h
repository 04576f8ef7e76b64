#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "balance/packing.h"

namespace headrace {

/// Pieces of each rank, ascending. Groups stay together, and with `equal_counts` ranks differ by
/// one piece at most wherever groups allow it.
using RankPieces = std::vector<std::vector<std::size_t>>;

/// Groups of pieces in the order `order` (all of them), each to the next rank; with `equal_counts`
/// each to the rank with the fewest pieces, ties by rank.
RankPieces dealt_in_turns(const PackingProblem& problem, std::span<const std::size_t> order);

/// Groups by largest differencing, as many on every rank, give or take one.
RankPieces by_equal_differencing(const PackingProblem& problem, std::span<const double> costs);

/// Ways of levelling `costs` (one a piece) over the ranks, each followed by the local search:
/// longest first, differencing, dealing out by falling cost. With `equal_counts` only those that
/// keep counts.
std::vector<RankPieces> levelled_ranks(const PackingProblem& problem,
                                       std::span<const double> costs);

/// Groups in the order of their first piece, and by falling cost of all their pieces, ties by
/// group.
std::vector<std::size_t> groups_in_order(const PackingProblem& problem);
std::vector<std::size_t> groups_by_cost(const PackingProblem& problem);

}  // namespace headrace
