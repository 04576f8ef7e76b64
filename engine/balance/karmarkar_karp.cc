#include "balance/karmarkar_karp.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include "balance/longest_first.h"

namespace headrace {
namespace {

constexpr std::size_t k_none = std::numeric_limits<std::size_t>::max();

/// One part of a partial partition: a chain of items from `first` to `last`. Its first item tells
/// it apart from every other.
struct Part {
  double sum = 0.0;
  std::size_t first = k_none;
  std::size_t last = k_none;
};

/// By falling sum, ties by item.
bool before(const Part& a, const Part& b) {
  return a.sum != b.sum ? a.sum > b.sum : a.first < b.first;
}

/// A partial partition: parts that hold an item, by falling sum; the others are empty.
using Partition = std::vector<Part>;

/// Joins partial partitions. Items are places in the order of falling cost, so that a lower number
/// is a larger item.
class Differencing {
 public:
  Differencing(std::size_t items, std::size_t parts) : parts_(parts), next_(items, k_none) {}

  double spread(const Partition& partition) const {
    return partition.size() < parts_ ? partition.front().sum
                                     : partition.front().sum - partition.back().sum;
  }

  /// Part i of `a` and part k - 1 - i of `b` become one.
  Partition joined(Partition a, Partition b) {
    if (a.size() < b.size()) {
      std::swap(a, b);
    }
    // Parts of `b` from the cheapest up meet parts of `a` from place k - |b| on.
    const std::size_t begin = parts_ - b.size();
    for (std::size_t i = 0; i < b.size(); ++i) {
      const Part& part = b[b.size() - 1 - i];
      if (begin + i < a.size()) {
        a[begin + i] = chained(a[begin + i], part);
      } else {
        a.push_back(part);
      }
    }
    if (b.size() == 1) {  // one part changed, and it only moves up
      const auto place = std::upper_bound(a.begin(), a.end() - 1, a.back(), before);
      std::rotate(place, a.end() - 1, a.end());
    } else {
      std::sort(a.begin(), a.end(), before);
    }
    return a;
  }

  /// The place of every part in `partition`, by item.
  std::vector<std::size_t> part_of_items(const Partition& partition) const {
    std::vector<std::size_t> result(next_.size());
    for (std::size_t part = 0; part < partition.size(); ++part) {
      for (std::size_t item = partition[part].first; item != k_none; item = next_[item]) {
        result[item] = part;
      }
    }
    return result;
  }

 private:
  Part chained(const Part& a, const Part& b) {
    const Part& head = a.first < b.first ? a : b;
    const Part& tail = a.first < b.first ? b : a;
    next_[head.last] = tail.first;
    return {.sum = a.sum + b.sum, .first = head.first, .last = tail.last};
  }

  std::size_t parts_;
  std::vector<std::size_t> next_;  ///< in the item's chain
};

/// Partitions wait here by falling spread, ties by their largest item.
class Waiting {
 public:
  std::size_t size() const { return heap_.size(); }
  double largest_spread() const { return heap_.top().spread; }
  void push(Partition partition, double spread) {
    std::size_t least = k_none;
    for (const Part& part : partition) {
      least = std::min(least, part.first);
    }
    heap_.push({.spread = spread, .item = least, .slot = slots_.size()});
    slots_.push_back(std::move(partition));
  }
  Partition pop() {
    const std::size_t slot = heap_.top().slot;
    heap_.pop();
    return std::move(slots_[slot]);
  }

 private:
  struct Entry {
    double spread = 0.0;
    std::size_t item = k_none;
    std::size_t slot = 0;
    bool operator<(const Entry& other) const {  // a lower priority
      return spread != other.spread ? spread < other.spread : item > other.item;
    }
  };
  std::priority_queue<Entry> heap_;
  std::vector<Partition> slots_;
};

}  // namespace

Bins karmarkar_karp(std::span<const double> costs, std::size_t parts, PartSizes sizes) {
  Bins bins(parts);
  if (costs.empty()) {
    return bins;
  }
  const std::vector<std::size_t> order = falling(costs);
  Differencing differencing(order.size(), parts);
  Waiting waiting;
  std::size_t single = 0;  // the next item that is in no partition yet
  if (sizes == PartSizes::equal) {
    while (single < order.size()) {
      Partition row;
      for (std::size_t i = 0; i < parts && single < order.size(); ++i, ++single) {
        row.push_back({.sum = costs[order[single]], .first = single, .last = single});
      }
      const double spread = differencing.spread(row);
      waiting.push(std::move(row), spread);
    }
  }
  const auto largest = [&] {
    const bool left = single < order.size();
    if (!left || (waiting.size() > 0 && waiting.largest_spread() >= costs[order[single]])) {
      return waiting.pop();
    }
    const Partition alone = {{.sum = costs[order[single]], .first = single, .last = single}};
    ++single;
    return alone;
  };
  while (waiting.size() + (order.size() - single) > 1) {
    Partition first = largest();
    Partition both = differencing.joined(std::move(first), largest());
    const double spread = differencing.spread(both);
    waiting.push(std::move(both), spread);
  }
  const std::vector<std::size_t> part_of = differencing.part_of_items(largest());
  for (std::size_t place = 0; place < order.size(); ++place) {
    bins[part_of[place]].push_back(order[place]);
  }
  return bins;
}

}  // namespace headrace
