#include "balance/karmarkar_karp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "balance/longest_first.h"
#include "balance/plain_reference.h"
#include "balance/support.h"

namespace headrace {
namespace {

using balance_test::Random;

Bins items_ascending(Bins bins) {
  for (auto& bin : bins) {
    std::ranges::sort(bin);
  }
  return bins;
}

std::vector<double> random_costs(Random& random, std::size_t count) {
  std::vector<double> costs(count);
  for (double& cost : costs) {
    cost = 1.0 + 99.0 * random.unit();
  }
  return costs;
}

// The textbook case: 8 7 | 6 5 4 has a difference of 0, differencing ends with 2.
TEST(KarmarkarKarp, joins_the_two_largest_differences) {
  const std::vector<double> costs = {4.0, 5.0, 6.0, 7.0, 8.0};
  EXPECT_EQ(loads(costs, karmarkar_karp(costs, 2, PartSizes::free)),
            (std::vector<double>{16.0, 14.0}));
}

// Random costs leave no ties, so there is one answer.
TEST(KarmarkarKarp, has_the_parts_of_the_naive_method) {
  Random random(1);
  for (int round = 0; round < 400; ++round) {
    const auto costs = random_costs(random, static_cast<std::size_t>(random.between(1, 60)));
    const auto parts = static_cast<std::size_t>(random.between(1, 12));
    for (const bool equal : {false, true}) {
      const Bins bins = karmarkar_karp(costs, parts, equal ? PartSizes::equal : PartSizes::free);
      ASSERT_EQ(items_ascending(bins),
                items_ascending(balance_test::naive_differencing(costs, parts, equal)))
          << "round " << round << (equal ? ", equal sizes" : ", free");
    }
  }
}

TEST(KarmarkarKarp, gives_equal_sizes_or_one_more_where_they_do_not_divide) {
  Random random(2);
  for (int round = 0; round < 300; ++round) {
    const auto count = static_cast<std::size_t>(random.between(0, 100));
    const auto parts = static_cast<std::size_t>(random.between(1, 17));
    const Bins bins = karmarkar_karp(random_costs(random, count), parts, PartSizes::equal);
    ASSERT_EQ(bins.size(), parts);
    for (const auto& bin : bins) {
      ASSERT_GE(bin.size(), count / parts);
      ASSERT_LE(bin.size(), (count + parts - 1) / parts);
    }
  }
}

TEST(KarmarkarKarp, orders_parts_by_cost_and_items_by_cost_and_breaks_ties_by_index) {
  const std::vector<double> costs(7, 1.0);
  const Bins bins = karmarkar_karp(costs, 3, PartSizes::free);
  EXPECT_EQ(bins, karmarkar_karp(costs, 3, PartSizes::free));
  EXPECT_EQ(loads(costs, bins), (std::vector<double>{3.0, 2.0, 2.0}));
  for (const auto& bin : bins) {
    EXPECT_TRUE(std::ranges::is_sorted(bin));
  }
  EXPECT_EQ(karmarkar_karp(std::vector<double>{2.0, 3.0}, 4, PartSizes::free),
            (Bins{{1}, {0}, {}, {}}));
  EXPECT_EQ(karmarkar_karp({}, 2, PartSizes::equal), Bins(2));
}

struct Spread {
  std::size_t parts = 1;
  double seconds = 0.0;
};

// Limits: a hundredth of what the plain Python takes on a processor of this kind (12.1 s, 28.1 s).
class KarmarkarKarpSpeed : public ::testing::TestWithParam<Spread> {};

TEST_P(KarmarkarKarpSpeed, partitions_100000_lengths_a_hundred_times_faster_than_plain_python) {
  const std::vector<std::int64_t> lengths = Random(3).longalign(100'000);
  std::vector<double> costs(lengths.size());
  std::ranges::transform(lengths, costs.begin(), [](std::int64_t tokens) {
    return balance_test::cost_1_5b().sample(tokens);
  });
  for (const PartSizes sizes : {PartSizes::free, PartSizes::equal}) {
    const double begin = balance_test::thread_seconds();
    const Bins bins = karmarkar_karp(costs, GetParam().parts, sizes);
    const double seconds = balance_test::thread_seconds() - begin;
    const auto [least, most] = std::ranges::minmax(loads(costs, bins));
    std::printf("karmarkar-karp of 100,000 lengths into %zu parts, %s: %.1f ms, spread %.2e\n",
                GetParam().parts, sizes == PartSizes::equal ? "equal" : "free", 1e3 * seconds,
                (most - least) / most);
    EXPECT_LT(seconds, GetParam().seconds * balance_test::slowdown_allowed());
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, KarmarkarKarpSpeed,
                         ::testing::Values(Spread{8, 0.121}, Spread{64, 0.281}),
                         [](const auto& one) { return std::to_string(one.param.parts); });

// A few items outweigh all others, so that every small item meets a full partition.
TEST(KarmarkarKarp, takes_no_quadratic_time_where_costs_fall_steeply) {
  std::vector<double> costs;
  for (int i = 0; i < 200'000; ++i) {
    costs.push_back(1e300 / (1.0 + 1e6 * i));
  }
  const double begin = balance_test::thread_seconds();
  karmarkar_karp(costs, 16, PartSizes::free);
  EXPECT_LT(balance_test::thread_seconds() - begin, 0.5 * balance_test::slowdown_allowed());
}

}  // namespace
}  // namespace headrace
