#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "balance/first_fit.h"

namespace headrace {

/// Longest-processing-time: items by falling cost, ties by index, each to the bin with the least
/// cost so far, ties by bin. Returns exactly `bins` bins (some may be empty), items in each by
/// falling cost.
Bins longest_first(std::span<const double> costs, std::size_t bins);

/// Moves or swaps single items out of the costliest bin for as long as that lowers it without
/// another bin rising as high, `rounds` times at most. Never raises the largest bin. Items in each
/// bin end by falling cost, ties by index. O(items) a round. With `counts`, one an item, only items
/// of equal count are swapped and none moves alone: the sum of counts in each bin stays.
Bins exchange(std::span<const double> costs, Bins bins, std::size_t rounds,
              std::span<const std::size_t> counts = {});

/// The cost of each bin, added up in the bin's own order.
std::vector<double> loads(std::span<const double> costs, const Bins& bins);

/// Item indices by falling cost, ties by index.
std::vector<std::size_t> falling(std::span<const double> costs);

}  // namespace headrace
