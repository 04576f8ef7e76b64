#include "balance/shuffle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "balance/support.h"

namespace headrace {
namespace {

std::vector<std::size_t> all(const Permutation& permutation) {
  return permutation.slice(0, permutation.size()).value();
}

// From the generator's published definition, seed 1234567.
TEST(SplitMix64, gives_the_reference_sequence) {
  SplitMix64 random(1234567);
  EXPECT_EQ(random.next(), 6457827717110365317ULL);
  EXPECT_EQ(random.next(), 3203168211198807973ULL);
  EXPECT_EQ(random.next(), 9817491932198370423ULL);
}

TEST(Permutation, holds_every_index_once) {
  for (const std::size_t size : {0U, 1U, 2U, 3U, 17U, 1000U}) {
    std::vector<std::size_t> order = all(Permutation(size, 3, 4));
    std::ranges::sort(order);
    EXPECT_EQ(order, balance_test::each_once(size));
  }
}

TEST(Permutation, depends_on_seed_and_epoch_alone) {
  EXPECT_EQ(all(Permutation(100, 1, 2)), all(Permutation(100, 1, 2)));
  EXPECT_NE(all(Permutation(100, 1, 2)), all(Permutation(100, 1, 3)));
  EXPECT_NE(all(Permutation(100, 1, 2)), all(Permutation(100, 2, 2)));
  EXPECT_NE(all(Permutation(100, 1, 2)), all(Permutation(100, 2, 1)));
}

// 24,000 orders of 4 things: each of the 24 orders about 1,000 times; 3.5 sigma is about 110.
TEST(Permutation, is_uniform_over_seeds) {
  std::array<int, 256> seen{};
  for (std::uint64_t seed = 0; seed < 24'000; ++seed) {
    const std::vector<std::size_t> order = all(Permutation(4, seed, 0));
    ++seen[order[0] * 64 + order[1] * 16 + order[2] * 4 + order[3]];
  }
  int orders = 0;
  for (const int count : seen) {
    if (count > 0) {
      ++orders;
      EXPECT_NEAR(count, 1000, 150);
    }
  }
  EXPECT_EQ(orders, 24);
}

TEST(Permutation, slice_outside_names_the_range) {
  const Permutation permutation(10, 0, 0);
  EXPECT_THAT(permutation.slice(5, 11).error().message, ::testing::HasSubstr("[5, 11)"));
  EXPECT_FALSE(permutation.slice(6, 5));
  EXPECT_TRUE(permutation.slice(10, 10)->empty());
}

}  // namespace
}  // namespace headrace
