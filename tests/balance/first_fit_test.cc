#include "balance/first_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

#include "balance/support.h"

namespace headrace {
namespace {

using balance_test::Random;

/// The definition, as slow as it reads.
Bins naive_first_fit_decreasing(const std::vector<std::int64_t>& sizes, std::int64_t cap) {
  std::vector<std::size_t> order = balance_test::each_once(sizes.size());
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return sizes[a] > sizes[b]; });
  Bins bins;
  std::vector<std::int64_t> room;
  for (const std::size_t item : order) {
    std::size_t bin = 0;
    while (bin < bins.size() && room[bin] < sizes[item]) {
      ++bin;
    }
    if (bin == bins.size()) {
      bins.emplace_back();
      room.push_back(cap);
    }
    bins[bin].push_back(item);
    room[bin] -= sizes[item];
  }
  return bins;
}

TEST(FirstFit, has_the_bins_of_the_naive_search) {
  Random random(7);
  for (int round = 0; round < 500; ++round) {
    const std::int64_t cap = random.between(1, 60);
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(random.between(0, 200)));
    for (std::int64_t& size : sizes) {
      size = random.between(0, cap);
    }
    ASSERT_EQ(first_fit_decreasing(sizes, cap).value(), naive_first_fit_decreasing(sizes, cap))
        << "round " << round;
  }
}

TEST(FirstFit, has_the_bins_of_the_naive_search_on_long_tails) {
  Random random(11);
  const std::vector<std::int64_t> sizes = random.longalign(5000);
  EXPECT_EQ(first_fit_decreasing(sizes, 65536).value(), naive_first_fit_decreasing(sizes, 65536));
}

TEST(FirstFit, fills_a_bin_to_the_last_token) {
  EXPECT_EQ(first_fit_decreasing(std::vector<std::int64_t>{48, 4, 60, 16}, 64).value(),
            (Bins{{2, 1}, {0, 3}}));
}

TEST(FirstFit, refuses_what_no_bin_can_hold) {
  EXPECT_THAT(first_fit_decreasing(std::vector<std::int64_t>{3, 9}, 8).error().message,
              ::testing::HasSubstr("index 1 has size 9"));
  EXPECT_THAT(first_fit_decreasing(std::vector<std::int64_t>{-1}, 8).error().message,
              ::testing::HasSubstr("index 0"));
  EXPECT_FALSE(first_fit_decreasing(std::vector<std::int64_t>{1}, 0));
}

TEST(FirstFitSpeed, packs_a_million_lengths_within_a_second) {
  Random random(3);
  const std::vector<std::int64_t> sizes = random.longalign(1'000'000);
  const double begin = balance_test::thread_seconds();
  const Result<Bins> bins = first_fit_decreasing(sizes, 65536);
  const double seconds = balance_test::thread_seconds() - begin;
  std::printf("first-fit decreasing of 1,000,000 lengths into %zu bins: %.3f s\n", bins->size(),
              seconds);
  EXPECT_LT(seconds, 1.0 * balance_test::slowdown_allowed());
}

}  // namespace
}  // namespace headrace
