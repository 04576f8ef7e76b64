#include "balance/workloads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "balance/support.h"

namespace headrace {
namespace {

constexpr std::size_t k_many = 200'000;

struct Shape {
  double mean = 0.0;
  std::int64_t p50 = 0;
  std::int64_t p90 = 0;
  std::int64_t p99 = 0;
  std::int64_t least = 0;
  std::int64_t most = 0;
  double share_at_most = 0.0;
};

Shape shape_of(Workload workload) {
  std::vector<std::int64_t> lengths = workload_lengths(workload, k_many, 1);
  std::ranges::sort(lengths);
  const auto count = static_cast<double>(lengths.size());
  const auto at_most = lengths.end() - std::ranges::lower_bound(lengths, lengths.back());
  return {.mean = std::accumulate(lengths.begin(), lengths.end(), 0.0) / count,
          .p50 = lengths[lengths.size() / 2],
          .p90 = lengths[lengths.size() * 9 / 10],
          .p99 = lengths[lengths.size() * 99 / 100],
          .least = lengths.front(),
          .most = lengths.back(),
          .share_at_most = static_cast<double>(at_most) / count};
}

TEST(Workloads, longalign_has_the_published_shape) {
  const Shape shape = shape_of(Workload::longalign);
  EXPECT_NEAR(shape.mean, 16'000, 500);
  EXPECT_NEAR(shape.p50, 12'500, 300);
  EXPECT_NEAR(shape.p90, 29'800, 600);
  EXPECT_NEAR(shape.p99, 57'000, 1000);
  EXPECT_GE(shape.least, 8192);
  EXPECT_LE(shape.most, 65'536);
}

TEST(Workloads, longalign_heavy_and_eighth_follow_from_it) {
  EXPECT_NEAR(shape_of(Workload::longalign_heavy).mean, 24'500, 500);
  const Shape eighth = shape_of(Workload::longalign_eighth);
  EXPECT_NEAR(eighth.mean, 2000, 100);
  EXPECT_GE(eighth.least, 1024);
  EXPECT_LE(eighth.most, 8192);
}

TEST(Workloads, swe_smith_is_cut_at_the_longest_trajectory_or_the_training_length) {
  const Shape shape = shape_of(Workload::swe_smith);
  EXPECT_NEAR(shape.p50, 29'144, 300);  // e^10.28
  EXPECT_EQ(shape.most, 156'000);
  const Shape cut = shape_of(Workload::swe_smith_32k);
  EXPECT_NEAR(cut.p50, 29'144, 300);
  EXPECT_EQ(cut.most, 32'768);
  EXPECT_NEAR(cut.share_at_most, 0.435, 0.01);  // ln 32768 is 0.165 sigma above mu
}

TEST(Workloads, rollouts_keep_their_mass_at_the_longest) {
  const Shape shape = shape_of(Workload::rollouts);
  EXPECT_NEAR(shape.p50, 6000, 60);
  EXPECT_EQ(shape.most, 16'384);
  EXPECT_NEAR(shape.share_at_most, 0.090, 0.005);  // ln(16384 / 6000) is 1.339 sigma
}

TEST(Workloads, short_sft_is_mostly_short) {
  const Shape shape = shape_of(Workload::short_sft);
  EXPECT_NEAR(shape.p50, 357, 10);
  EXPECT_NEAR(shape.p90, 1058, 20);
  EXPECT_EQ(shape.most, 8192);
  EXPECT_NEAR(shape.share_at_most, 0.02, 0.003);
}

TEST(Workloads, depend_on_the_seed_alone_and_grow_at_the_end) {
  for (const Workload workload : workloads()) {
    const std::vector<std::int64_t> lengths = workload_lengths(workload, 100, 7);
    EXPECT_EQ(lengths, workload_lengths(workload, 100, 7));
    EXPECT_NE(lengths, workload_lengths(workload, 100, 8));
    std::vector<std::int64_t> longer = workload_lengths(workload, 150, 7);
    longer.resize(100);
    EXPECT_EQ(longer, lengths);
    EXPECT_GE(std::ranges::min(lengths), 1);
  }
}

// The very numbers: another platform or compiler must not give others.
TEST(Workloads, are_the_same_numbers_on_every_platform) {
  const auto first = [](Workload workload) { return workload_lengths(workload, 4, 1); };
  using Lengths = std::vector<std::int64_t>;
  EXPECT_EQ(first(Workload::longalign), (Lengths{13595, 18457, 46554, 11728}));
  EXPECT_EQ(first(Workload::swe_smith), (Lengths{39533, 40299, 23108, 61661}));
  EXPECT_EQ(first(Workload::rollouts), (Lengths{8280, 8449, 4695, 13242}));
}

TEST(Workloads, have_the_names_that_users_write) {
  for (const Workload workload : workloads()) {
    EXPECT_EQ(parse_workload(to_string(workload)).value(), workload);
  }
  EXPECT_THAT(parse_workload("aime").error().message,
              ::testing::HasSubstr("'aime'; known are longalign, longalign-heavy"));
}

}  // namespace
}  // namespace headrace
