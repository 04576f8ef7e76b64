#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "balance/first_fit.h"

namespace headrace {

/// What a strategy sees: pieces as integers and costs, every size within the cap.
struct PackingProblem {
  std::span<const std::int64_t> sizes;  ///< aligned tokens of each piece, 1 to cap
  std::span<const double> costs;        ///< of each piece
  std::size_t ranks = 1;
  std::int64_t cap = 1;
  double per_microbatch = 0.0;  ///< cost of a microbatch beyond its pieces'
  /// Group of each piece, numbered 0, 1, ... in order of their first piece: pieces of one group
  /// stay on one rank. Empty: every piece alone.
  std::span<const std::size_t> groups = {};
  /// As many pieces on every rank, give or take one, wherever groups allow it.
  bool equal_counts = false;
  std::size_t min_microbatches = 0;  ///< of every rank; fillers where pieces are too few
  std::size_t exchange_rounds = 0;   ///< longest local search that levels ranks
  std::size_t exchange_trials = 0;   ///< most exchanges tried by the local search that levels steps
  /// Pieces times bins above which slow constructions are left out and searches cut short.
  std::size_t placement_trials = 0;

  /// Whether ranks may swap pieces at all, and whether one may give a piece and take none.
  bool may_swap() const { return groups.empty(); }
  bool may_move() const { return groups.empty() && !equal_counts; }
  /// Of the local search over so many items: fewer than `exchange_rounds` where they are very many.
  std::size_t rounds(std::size_t items) const {
    return std::min(exchange_rounds, placement_trials / std::max<std::size_t>(items, 1));
  }
};

/// [rank][microbatch] -> pieces. Every piece exactly once; no microbatch above the cap. An empty
/// microbatch is a filler.
using Packing = std::vector<Bins>;

/// A strategy is a function from a problem to a packing; strategies.cc lists them by name.
using PackingFunction = Packing (*)(const PackingProblem&);

Packing pack_none(const PackingProblem& problem);
Packing pack_sorted(const PackingProblem& problem);
Packing pack_lb_micro(const PackingProblem& problem);
Packing pack_lb_mini(const PackingProblem& problem);
/// Both two-level strategies, which within one minibatch are the same: equal differencing over the
/// ranks, then as many levelled microbatches on each.
Packing pack_two_level(const PackingProblem& problem);

}  // namespace headrace
