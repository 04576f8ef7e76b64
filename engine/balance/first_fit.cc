#include "balance/first_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace headrace {
namespace {

/// The room left in bins 0, 1, ... as the leaves of a binary tree whose inner nodes hold the
/// maximum of their children. Bins that were never used count as empty, so a search always ends in
/// a bin.
class RoomTree {
 public:
  explicit RoomTree(std::int64_t cap) : cap_(cap), nodes_(2, cap) {}

  /// Takes `size` from the first bin that has room for it and returns that bin.
  std::size_t place(std::int64_t size) {
    while (nodes_[1] < size) {
      grow();
    }
    std::size_t node = 1;
    while (node < leaves_) {
      node *= 2;
      if (nodes_[node] < size) {
        ++node;
      }
    }
    const std::size_t bin = node - leaves_;
    nodes_[node] -= size;
    while (node > 1) {
      node /= 2;
      nodes_[node] = std::max(nodes_[2 * node], nodes_[2 * node + 1]);
    }
    return bin;
  }

 private:
  void grow() {
    std::vector<std::int64_t> nodes(4 * leaves_, cap_);
    for (std::size_t width = leaves_; width > 0; width /= 2) {
      std::copy_n(nodes_.begin() + static_cast<std::ptrdiff_t>(width), width,
                  nodes.begin() + static_cast<std::ptrdiff_t>(2 * width));
    }
    leaves_ *= 2;
    nodes_ = std::move(nodes);
  }

  std::int64_t cap_;
  std::size_t leaves_ = 1;
  std::vector<std::int64_t> nodes_;
};

}  // namespace

std::vector<std::size_t> falling(std::span<const std::int64_t> sizes) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return sizes[a] != sizes[b] ? sizes[a] > sizes[b] : a < b;
  });
  return order;
}

Result<Bins> first_fit_decreasing(std::span<const std::int64_t> sizes, std::int64_t cap) {
  if (cap < 1) {
    return operation_error(fmt::format("the token cap must be positive, not {}", cap));
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0 || sizes[i] > cap) {
      return operation_error(fmt::format(
          "the item at index {} has size {}, which no bin of {} can hold", i, sizes[i], cap));
    }
  }
  RoomTree room(cap);
  Bins bins;
  for (const std::size_t item : falling(sizes)) {
    const std::size_t bin = room.place(sizes[item]);
    if (bin == bins.size()) {
      bins.emplace_back();
    }
    bins[bin].push_back(item);
  }
  return bins;
}

}  // namespace headrace
