#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace headrace {

/// Bins of item indices, in the order in which the bins were opened.
using Bins = std::vector<std::vector<std::size_t>>;

/// First-fit decreasing: items by falling size, ties by index, each into the first bin where it
/// fits. O(n log n) with a tournament tree over the bins; the bins are those of the naive search.
/// Error naming the first item that is negative or larger than `cap`; cap > 0.
Result<Bins> first_fit_decreasing(std::span<const std::int64_t> sizes, std::int64_t cap);

/// Item indices by falling size, ties by index.
std::vector<std::size_t> falling(std::span<const std::int64_t> sizes);

}  // namespace headrace
