#include "balance/cost_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace headrace {
namespace {

using ::testing::HasSubstr;

TEST(CostModel, presets_are_the_published_fits) {
  const CostModel small = CostModel::preset("1.5B").value();
  const CostModel large = CostModel::preset("7B").value();
  EXPECT_NEAR(small.sample(32000), 1.982 + 2.612, 1e-12);
  EXPECT_NEAR(small.sample(64000), 4 * 1.982 + 2 * 2.612, 1e-12);
  EXPECT_NEAR(large.sample(16000), 4.348 / 4 + 8.768 / 2, 1e-12);
}

TEST(CostModel, unknown_preset_names_the_known_ones) {
  const Result<CostModel> model = CostModel::preset("70B");
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message, HasSubstr("'70B'"));
  EXPECT_THAT(model.error().message, HasSubstr("1.5B, 7B"));
}

// 24576 s + s^2 passes 2^31 at s = 35,655.
TEST(CostModel, does_not_overflow_at_long_samples) {
  const CostModel model = CostModel::make(1.0, 24576.0).value();
  EXPECT_EQ(model.sample(35654), 35654.0 * 35654.0 + 24576.0 * 35654.0);
  EXPECT_EQ(model.sample(35655), 35655.0 * 35655.0 + 24576.0 * 35655.0);
  EXPECT_GT(model.sample(35655), 2147483648.0);
  EXPECT_GT(model.sample(1'000'000'000'000), 1e24);
}

// A decoder small enough to count by hand: hidden 4, 2 layers, 2 heads and 1 kv head of 3, MLP 5,
// vocabulary 7.
TEST(CostModel, from_shape_counts_forward_and_backward) {
  const CostModel model = CostModel::from_shape({.hidden = 4,
                                                 .layers = 2,
                                                 .heads = 2,
                                                 .kv_heads = 1,
                                                 .head_size = 3,
                                                 .intermediate = 5,
                                                 .vocabulary = 7})
                              .value();
  const double query = 4 * 6;
  const double key = 4 * 3;
  const double value = 4 * 3;
  const double back = 6 * 4;
  const double mlp = 4 * 5 + 4 * 5 + 5 * 4;
  const double weights = 2 * (query + key + value + back + mlp) + 4 * 7;
  EXPECT_DOUBLE_EQ(model.linear(), 6 * weights);
  // Two products of s * s / 2 * 6 multiply-adds a layer, 2 operations each, forward and twice
  // backward.
  EXPECT_DOUBLE_EQ(model.quadratic(), 3 * 2 * (2 * 0.5 * 6) * 2);
  EXPECT_DOUBLE_EQ(model.per_microbatch(), 0.0);
}

TEST(CostModel, from_shape_of_1_5b_is_close_to_its_published_fit) {
  const CostModel counted = CostModel::from_shape({.hidden = 1536,
                                                   .layers = 28,
                                                   .heads = 12,
                                                   .kv_heads = 2,
                                                   .head_size = 128,
                                                   .intermediate = 8960,
                                                   .vocabulary = 151936})
                                .value();
  const CostModel measured = CostModel::preset("1.5B").value();
  const double counted_ratio = counted.quadratic() * 32000 / counted.linear();
  const double measured_ratio = measured.quadratic() * 32000 / measured.linear();
  EXPECT_NEAR(counted_ratio / measured_ratio, 1.0, 0.25);
}

TEST(CostModel, from_shape_names_the_member_that_is_missing) {
  const Result<CostModel> model = CostModel::from_shape({.hidden = 4,
                                                         .layers = 2,
                                                         .heads = 2,
                                                         .kv_heads = 0,
                                                         .head_size = 3,
                                                         .intermediate = 5,
                                                         .vocabulary = 7});
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message, HasSubstr("kv_heads, not 0"));
}

TEST(CostModel, fit_recovers_what_made_the_points) {
  const CostModel truth = CostModel::make(3e-9, 2e-5, 0.125).value();
  std::vector<CostPoint> points;
  for (const std::int64_t tokens : {512, 1024, 4096, 16384, 65536}) {
    points.push_back({tokens, truth.sample(tokens) + truth.per_microbatch()});
  }
  const CostModel model = CostModel::fit(points, /*with_microbatch=*/true).value();
  EXPECT_NEAR(model.quadratic() / truth.quadratic(), 1.0, 1e-9);
  EXPECT_NEAR(model.linear() / truth.linear(), 1.0, 1e-9);
  EXPECT_NEAR(model.per_microbatch() / truth.per_microbatch(), 1.0, 1e-6);
}

// Costs that grow slower than the length would need a negative square.
TEST(CostModel, fit_never_gives_a_negative_coefficient) {
  const std::vector<CostPoint> points = {{100, 10.0}, {200, 14.0}, {400, 20.0}, {800, 28.0}};
  for (const bool with_microbatch : {false, true}) {
    const CostModel model = CostModel::fit(points, with_microbatch).value();
    EXPECT_EQ(model.quadratic(), 0.0);
    EXPECT_GT(model.linear(), 0.0);
    EXPECT_EQ(model.per_microbatch() > 0.0, with_microbatch);
  }
}

// Noise of known sign: the best line through (1, 1.1) and (2, 1.9) has slope (1.1 + 2 * 1.9) / 5.
TEST(CostModel, fit_is_least_squares) {
  const std::vector<CostPoint> points = {{1, 1.1}, {2, 1.9}, {1, 1.1}, {2, 1.9}};
  const CostModel model = CostModel::fit(points).value();
  EXPECT_EQ(model.quadratic(), 0.0);
  EXPECT_NEAR(model.linear(), (1.1 + 2 * 1.9) / 5, 1e-12);
}

TEST(CostModel, fit_refuses_points_that_do_not_decide) {
  const std::vector<CostPoint> one_length = {{100, 1.0}, {100, 1.1}};
  EXPECT_THAT(CostModel::fit(one_length).error().message, HasSubstr("2 distinct lengths"));
  const std::vector<CostPoint> negative = {{100, 1.0}, {200, -2.0}};
  EXPECT_THAT(CostModel::fit(negative).error().message, HasSubstr("point 1"));
  const std::vector<CostPoint> free = {{100, 0.0}, {200, 0.0}};
  EXPECT_FALSE(CostModel::fit(free));
}

TEST(CostModel, make_refuses_coefficients_without_meaning) {
  EXPECT_THAT(CostModel::make(-1.0, 1.0).error().message, HasSubstr("quadratic"));
  EXPECT_THAT(CostModel::make(1.0, std::nan("")).error().message, HasSubstr("linear"));
  EXPECT_THAT(CostModel::make(1.0, 1.0, std::numeric_limits<double>::infinity()).error().message,
              HasSubstr("per_microbatch"));
  EXPECT_THAT(CostModel::make(0.0, 0.0, 1.0).error().message, HasSubstr("free"));
}

}  // namespace
}  // namespace headrace
