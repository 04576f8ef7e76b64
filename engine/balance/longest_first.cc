#include "balance/longest_first.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <queue>
#include <utility>

namespace headrace {
namespace {

/// An improvement smaller than this share of the load is rounding.
constexpr double k_rounding = 1e-12;

struct Exchange {
  std::size_t to = 0;
  std::size_t give = 0;             ///< position in the costliest bin
  std::optional<std::size_t> take;  ///< position in bin `to`; nothing for a plain move
  double highest = 0.0;             ///< the larger of the two loads afterwards
};

/// Whether item a comes before item b: by falling cost, ties by index.
auto before(std::span<const double> costs) {
  return [costs](std::size_t a, std::size_t b) {
    return costs[a] != costs[b] ? costs[a] > costs[b] : a < b;
  };
}

std::size_t remove_at(std::vector<std::size_t>& items, std::size_t position) {
  const std::size_t item = items[position];
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(position));
  return item;
}

void insert_in_order(std::span<const double> costs, std::vector<std::size_t>& items,
                     std::size_t item) {
  items.insert(std::ranges::lower_bound(items, item, before(costs)), item);
}

/// The exchange between bins `from` and `to` that comes closest to levelling them. Both are sorted,
/// so one walk over each finds it: the partner wanted for an item falls with the item.
std::optional<Exchange> best_exchange(std::span<const double> costs, const Bins& bins,
                                      std::span<const double> load,
                                      std::span<const std::size_t> counts, std::size_t from,
                                      std::size_t to) {
  const std::vector<std::size_t>& giver = bins[from];
  const std::vector<std::size_t>& taker = bins[to];
  const double half_gap = (load[from] - load[to]) / 2.0;
  std::optional<Exchange> best;
  const auto consider = [&](std::size_t give, std::size_t take) {
    if (!counts.empty() && (take == taker.size() || counts[giver[give]] != counts[taker[take]])) {
      return;
    }
    const double back = take < taker.size() ? costs[taker[take]] : 0.0;
    const double moved = costs[giver[give]] - back;
    const double highest = std::max(load[from] - moved, load[to] + moved);
    if (!best || highest < best->highest) {
      best = Exchange{.to = to, .give = give, .take = std::nullopt, .highest = highest};
      if (take < taker.size()) {
        best->take = take;
      }
    }
  };
  std::size_t take = 0;
  for (std::size_t give = 0; give < giver.size(); ++give) {
    const double wanted = costs[giver[give]] - half_gap;
    while (take < taker.size() && costs[taker[take]] > wanted) {
      ++take;
    }
    consider(give, take);
    if (take > 0) {
      consider(give, take - 1);
    }
  }
  return best;
}

}  // namespace

std::vector<std::size_t> falling(std::span<const double> costs) {
  std::vector<std::size_t> order(costs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, before(costs));
  return order;
}

std::vector<double> loads(std::span<const double> costs, const Bins& bins) {
  std::vector<double> result;
  result.reserve(bins.size());
  for (const std::vector<std::size_t>& bin : bins) {
    double load = 0.0;
    for (const std::size_t item : bin) {
      load += costs[item];
    }
    result.push_back(load);
  }
  return result;
}

Bins longest_first(std::span<const double> costs, std::size_t bins) {
  Bins result(bins);
  using Load = std::pair<double, std::size_t>;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least;
  for (std::size_t bin = 0; bin < bins; ++bin) {
    least.emplace(0.0, bin);
  }
  for (const std::size_t item : falling(costs)) {
    const auto [load, bin] = least.top();
    least.pop();
    result[bin].push_back(item);
    least.emplace(load + costs[item], bin);
  }
  return result;
}

Bins exchange(std::span<const double> costs, Bins bins, std::size_t rounds,
              std::span<const std::size_t> counts) {
  for (std::vector<std::size_t>& bin : bins) {
    std::ranges::sort(bin, before(costs));
  }
  std::vector<double> load = loads(costs, bins);
  for (std::size_t round = 0; round < rounds; ++round) {
    const auto from = static_cast<std::size_t>(std::ranges::max_element(load) - load.begin());
    std::optional<Exchange> best;
    for (std::size_t to = 0; to < bins.size(); ++to) {
      if (to == from) {
        continue;
      }
      const std::optional<Exchange> found = best_exchange(costs, bins, load, counts, from, to);
      if (found && (!best || found->highest < best->highest)) {
        best = found;
      }
    }
    if (!best || best->highest >= load[from] * (1.0 - k_rounding)) {
      break;
    }
    std::vector<std::size_t>& giver = bins[from];
    std::vector<std::size_t>& taker = bins[best->to];
    const std::size_t given = remove_at(giver, best->give);
    if (best->take) {
      insert_in_order(costs, giver, remove_at(taker, *best->take));
    }
    insert_in_order(costs, taker, given);
    for (const std::size_t bin : {from, best->to}) {
      load[bin] = 0.0;
      for (const std::size_t item : bins[bin]) {
        load[bin] += costs[item];
      }
    }
  }
  return bins;
}

}  // namespace headrace
