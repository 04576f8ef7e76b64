#pragma once

#include <cstddef>
#include <span>

#include "balance/first_fit.h"

namespace headrace {

/// Whether parts may differ in their number of items.
enum class PartSizes { free, equal };

/// The largest differencing method for `parts` parts (Karmarkar and Karp 1982; for equal sizes
/// Michiels et al. 2003): the two partial partitions with the largest differences are joined,
/// costliest part to cheapest, until one is left. With equal sizes it starts from rows of `parts`
/// items of like cost, and the numbers of items differ by one at most (by none where they divide).
/// Returns exactly `parts` bins, costliest first, items in each by falling cost; ties by index. O(n
/// log n) for few parts; parts * n at worst.
Bins karmarkar_karp(std::span<const double> costs, std::size_t parts, PartSizes sizes);

}  // namespace headrace
