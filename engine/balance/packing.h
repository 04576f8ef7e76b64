#pragma once

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
  double per_microbatch = 0.0;      ///< cost of a microbatch beyond its pieces'
  std::size_t exchange_rounds = 0;  ///< longest local search that levels ranks
  std::size_t exchange_trials = 0;  ///< most exchanges tried by the local search that levels steps
  std::size_t placement_trials =
      0;  ///< pieces times bins above which slow constructions are left out
};

/// [rank][microbatch] -> pieces. Every piece exactly once; no microbatch above the cap. An empty
/// microbatch is a filler.
using Packing = std::vector<Bins>;

/// A strategy is a function from a problem to a packing; strategies.cc lists them by name.
using PackingFunction = Packing (*)(const PackingProblem&);

Packing pack_none(const PackingProblem& problem);
Packing pack_lb_mini(const PackingProblem& problem);
Packing pack_lb_micro(const PackingProblem& problem);

}  // namespace headrace
