#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "balance/packing.h"

namespace headrace {

/// What no packing of the problem's pieces can be faster than, in the cost model's unit.
struct LowerBounds {
  double lockstep = 0.0;
  double on_demand = 0.0;  ///< never above `lockstep`
};

/// True bounds, simple ones; the largest counts.
/// On-demand: an equal share of all costs with the fewest microbatches; the costliest group; of the
/// j * ranks + 1 costliest groups some rank has j + 1, for every j (the pair bound and its kin);
/// and the rank with the most microbatches, each of them with the cheapest piece. Lockstep: the
/// same; and, for q = 1, 2, ...: of pieces above cap / (q + 1) a step holds q a rank at most, so
/// that steps are at least as costly as if the costliest were together.
LowerBounds lower_bounds(const PackingProblem& problem);

/// No fewer microbatches can hold pieces of these sizes: their total over the cap, or the pieces of
/// more than half of it.
std::size_t fewest_microbatches(std::span<const std::int64_t> sizes, std::int64_t cap);

}  // namespace headrace
