#include "balance/longest_first.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "balance/support.h"

namespace headrace {
namespace {

using balance_test::Random;

double highest(const std::vector<double>& costs, const Bins& bins) {
  return std::ranges::max(loads(costs, bins));
}

std::vector<std::size_t> all_items(const Bins& bins) {
  std::vector<std::size_t> items;
  for (const auto& bin : bins) {
    items.insert(items.end(), bin.begin(), bin.end());
  }
  std::ranges::sort(items);
  return items;
}

/// The least possible highest load, by trying every assignment.
double optimum(const std::vector<double>& costs, std::size_t bins) {
  double best = 1e300;
  std::vector<double> load(bins, 0.0);
  const auto place = [&](const auto& self, std::size_t item) -> void {
    if (item == costs.size()) {
      best = std::min(best, std::ranges::max(load));
      return;
    }
    for (double& bin : load) {
      bin += costs[item];
      self(self, item + 1);
      bin -= costs[item];
    }
  };
  place(place, 0);
  return best;
}

TEST(LongestFirst, gives_the_longest_to_the_least_loaded_and_breaks_ties_by_index) {
  const std::vector<double> costs = {1.0, 5.0, 5.0, 2.0, 4.0};
  EXPECT_EQ(longest_first(costs, 2), (Bins{{1, 4}, {2, 3, 0}}));
}

TEST(LongestFirst, leaves_bins_empty_when_items_run_out) {
  EXPECT_EQ(longest_first(std::vector<double>{2.0, 3.0}, 4), (Bins{{1}, {0}, {}, {}}));
}

// The classic case that longest-first gets wrong: 3 3 | 2 2 2 costs 6 and 6, longest-first 7 and 5.
TEST(Exchange, repairs_the_case_that_longest_first_gets_wrong) {
  const std::vector<double> costs = {3.0, 3.0, 2.0, 2.0, 2.0};
  const Bins start = longest_first(costs, 2);
  EXPECT_EQ(highest(costs, start), 7.0);
  EXPECT_EQ(highest(costs, exchange(costs, start, 10)), 6.0);
}

TEST(Exchange, does_nothing_in_no_rounds) {
  const std::vector<double> costs = {3.0, 3.0, 2.0, 2.0, 2.0};
  EXPECT_EQ(exchange(costs, longest_first(costs, 2), 0), longest_first(costs, 2));
}

TEST(Exchange, keeps_every_item_and_never_raises_the_highest_load) {
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<double> costs(static_cast<std::size_t>(random.between(0, 60)));
    for (double& cost : costs) {
      cost = static_cast<double>(random.between(1, 100));
    }
    const auto ranks = static_cast<std::size_t>(random.between(1, 9));
    Bins start(ranks);
    for (std::size_t item = 0; item < costs.size(); ++item) {
      start[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(ranks) - 1))]
          .push_back(item);
    }
    const Bins result = exchange(costs, start, 100);
    ASSERT_EQ(all_items(result), balance_test::each_once(costs.size()));
    ASSERT_LE(highest(costs, result), highest(costs, start));
  }
}

TEST(Exchange, comes_close_to_the_optimum_of_small_cases) {
  Random random(9);
  double worst = 1.0;
  double sum = 0.0;
  constexpr int k_rounds = 200;
  for (int round = 0; round < k_rounds; ++round) {
    std::vector<double> costs(static_cast<std::size_t>(random.between(3, 9)));
    for (double& cost : costs) {
      cost = static_cast<double>(random.between(1, 100));
    }
    const double found = highest(costs, exchange(costs, longest_first(costs, 3), 100));
    const double ratio = found / optimum(costs, 3);
    ASSERT_GE(ratio, 1.0);
    worst = std::max(worst, ratio);
    sum += ratio;
  }
  EXPECT_LT(worst, 4.0 / 3.0);  // the bound of longest-first alone is 4/3 - 1/9
  EXPECT_LT(sum / k_rounds, 1.02);
}

}  // namespace
}  // namespace headrace
