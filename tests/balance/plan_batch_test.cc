#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "balance/support.h"

namespace headrace {
namespace {

using balance_test::Random;
using ::testing::HasSubstr;

std::vector<std::size_t> samples_of(const std::vector<BalancePlan>& plans) {
  std::vector<std::size_t> samples;
  for (const BalancePlan& plan : plans) {
    const std::vector<std::size_t> own = balance_test::samples_of(plan);
    samples.insert(samples.end(), own.begin(), own.end());
  }
  std::ranges::sort(samples);
  return samples;
}

TEST(PlanBatch, trains_every_sample_once_under_the_cap) {
  Random random(1);
  for (int round = 0; round < 100; ++round) {
    const auto minibatches = static_cast<std::size_t>(random.between(1, 5));
    const auto ranks = static_cast<int>(random.between(1, 6));
    const auto count = static_cast<std::size_t>(
        random.between(static_cast<std::int64_t>(minibatches) * ranks, 60));
    const std::vector<std::int64_t> lengths = random.longalign(count);
    for (const Strategy strategy : balance_test::k_all) {
      const std::vector<BalancePlan> plans =
          plan_batch(lengths, minibatches, balance_test::options(strategy, ranks, 65536)).value();
      ASSERT_EQ(plans.size(), minibatches);
      ASSERT_EQ(samples_of(plans), balance_test::each_once(count));
      for (const BalancePlan& plan : plans) {
        ASSERT_LE(balance_test::largest_microbatch(plan), 65536);
      }
    }
  }
}

TEST(PlanBatch, of_one_minibatch_is_the_plan_of_it) {
  const std::vector<std::int64_t> lengths = Random(2).longalign(50);
  for (const Strategy strategy : balance_test::k_all) {
    const BalanceOptions options = balance_test::options(strategy, 4, 65536);
    EXPECT_EQ(plan_batch(lengths, 1, options)->front(), plan_minibatch(lengths, options).value());
  }
}

TEST(PlanBatch, cuts_consecutive_samples_in_nearly_equal_numbers) {
  const std::vector<std::int64_t> lengths(7, 10);
  const std::vector<BalancePlan> plans =
      plan_batch(lengths, 3, balance_test::options(Strategy::lb_mini, 2, 100)).value();
  EXPECT_EQ(balance_test::samples_of(plans[0]), (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(balance_test::samples_of(plans[1]), (std::vector<std::size_t>{2, 3}));
  EXPECT_EQ(balance_test::samples_of(plans[2]), (std::vector<std::size_t>{4, 5, 6}));
}

// Ranks are level over the batch, 22 tokens each, but not within its minibatches.
TEST(PlanBatch, verl_native_levels_ranks_over_the_batch_and_cuts_their_samples_in_order) {
  const std::vector<std::int64_t> lengths = {20, 1, 1, 20, 1, 1, 1, 1};
  const auto makespans = [&](Strategy strategy) {
    BalanceOptions options = balance_test::options(strategy, 2, 100);
    options.cost = CostModel::make(0.0, 1.0).value();
    std::vector<double> result;
    const std::vector<BalancePlan> plans = plan_batch(lengths, 2, options).value();
    for (const BalancePlan& plan : plans) {
      EXPECT_TRUE(plan.equal_counts());
      result.push_back(plan.on_demand.makespan);
    }
    return result;
  };
  EXPECT_EQ(makespans(Strategy::verl_optimized), (std::vector<double>{21.0, 2.0}));
  const std::vector<double> native = makespans(Strategy::verl_native);
  EXPECT_EQ(native.front(), 21.0);
  EXPECT_GE(native.back(), 2.0);
}

TEST(PlanBatch, verl_native_gives_every_rank_as_many_samples_in_every_minibatch) {
  const std::vector<std::int64_t> lengths = Random(3).longalign(96);
  const std::vector<BalancePlan> plans =
      plan_batch(lengths, 4, balance_test::options(Strategy::verl_native, 8, 65536)).value();
  for (const BalancePlan& plan : plans) {
    for (const auto& microbatches : plan.ranks) {
      std::size_t samples = 0;
      for (const Microbatch& microbatch : microbatches) {
        samples += microbatch.pieces.size();
      }
      EXPECT_EQ(samples, 3U);
    }
  }
}

TEST(PlanBatch, keeps_groups_in_one_minibatch_and_on_one_rank) {
  Random random(4);
  std::vector<std::int64_t> groups;
  for (std::int64_t i = 0; i < 64; ++i) {
    groups.push_back(i % 16);  // the samples of a group lie apart
  }
  const std::vector<std::int64_t> lengths = random.longalign(groups.size());
  for (const Strategy strategy : balance_test::k_all) {
    BalanceOptions options = balance_test::options(strategy, 4, 65536);
    options.groups = groups;
    const std::vector<BalancePlan> plans = plan_batch(lengths, 4, options).value();
    EXPECT_EQ(samples_of(plans), balance_test::each_once(lengths.size()));
    std::map<std::int64_t, std::set<std::pair<std::size_t, std::size_t>>> places;
    for (std::size_t minibatch = 0; minibatch < plans.size(); ++minibatch) {
      for (std::size_t rank = 0; rank < 4; ++rank) {
        for (const Microbatch& microbatch : plans[minibatch].ranks[rank]) {
          for (const SamplePiece& piece : microbatch.pieces) {
            places[groups[piece.sample]].emplace(minibatch, rank);
          }
        }
      }
    }
    for (const auto& [group, where] : places) {
      EXPECT_EQ(where.size(), 1U) << "group " << group << ", " << to_string(strategy);
    }
  }
}

TEST(PlanBatch, reports_oversize_samples_by_their_place_in_the_batch) {
  const std::vector<std::int64_t> lengths = {4, 4, 4, 30, 4, 4};
  for (const Strategy strategy : balance_test::k_all) {
    BalanceOptions options = balance_test::options(strategy, 1, 10);
    EXPECT_THAT(plan_batch(lengths, 2, options).error().message, HasSubstr("index 3 has 30"));
    options.oversize = Oversize::drop;
    std::vector<std::size_t> oversize;
    std::int64_t lost = 0;
    const std::vector<BalancePlan> plans = plan_batch(lengths, 2, options).value();
    for (const BalancePlan& plan : plans) {
      oversize.insert(oversize.end(), plan.oversize.begin(), plan.oversize.end());
      lost += plan.tokens_lost;
    }
    EXPECT_EQ(oversize, std::vector<std::size_t>{3}) << to_string(strategy);
    EXPECT_EQ(lost, 30);
  }
}

TEST(PlanBatch, refuses_too_few_samples_and_no_minibatches) {
  const std::vector<std::int64_t> lengths = {4, 4, 4};
  const BalanceOptions options = balance_test::options(Strategy::lb_mini, 2, 10);
  EXPECT_THAT(plan_batch(lengths, 0, options).error().message, HasSubstr("at least 1 minibatch"));
  EXPECT_THAT(plan_batch(lengths, 4, options).error().message,
              HasSubstr("the batch has 3 samples (or groups), too few for 4 minibatches"));
  EXPECT_THAT(
      plan_batch(lengths, 2, balance_test::options(Strategy::verl_native, 2, 10)).error().message,
      HasSubstr("rank 1 has 1 samples (or groups), too few for 2 minibatches"));
  EXPECT_THAT(plan_batch({}, 1, options).error().message, HasSubstr("0 samples"));
}

}  // namespace
}  // namespace headrace
