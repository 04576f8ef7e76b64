#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "balance/support.h"

namespace headrace {
namespace {

using balance_test::Random;
using ::testing::HasSubstr;

std::vector<std::size_t> samples_of_rank(const std::vector<Microbatch>& microbatches) {
  std::vector<std::size_t> samples;
  for (const Microbatch& microbatch : microbatches) {
    for (const SamplePiece& piece : microbatch.pieces) {
      samples.push_back(piece.sample);
    }
  }
  return samples;
}

std::size_t filled(const std::vector<Microbatch>& microbatches) {
  return static_cast<std::size_t>(
      std::ranges::count(microbatches, false, [](const Microbatch& m) { return m.filler(); }));
}

/// Lengths, group ids with gaps in random order, and options; `size` samples a group, or 1 to 6.
struct GroupedCase {
  std::vector<std::int64_t> lengths;
  std::vector<std::int64_t> groups;
  BalanceOptions options = balance_test::options(Strategy::none, 1, 1);
};

GroupedCase grouped_case(Random& random, std::int64_t groups, std::int64_t size) {
  GroupedCase c;
  c.options.world_size = static_cast<int>(random.between(1, 8));
  c.options.cap = random.between(64, 1024);
  c.options.cost = CostModel::make(random.unit() * 1e-3, 1.0, random.unit() * 100.0).value();
  for (std::int64_t group = 0; group < groups; ++group) {
    for (std::int64_t left = size > 0 ? size : random.between(1, 6); left > 0; --left) {
      c.lengths.push_back(random.between(1, c.options.cap));
      c.groups.push_back(1000 - 7 * group);
    }
  }
  for (std::size_t i = c.groups.size(); i > 1; --i) {
    std::swap(
        c.groups[i - 1],
        c.groups[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(i) - 1))]);
  }
  c.options.groups = c.groups;
  return c;
}

void expect_valid(const BalancePlan& plan, const GroupedCase& c) {
  EXPECT_EQ(balance_test::samples_of(plan), balance_test::each_once(c.lengths.size()));
  EXPECT_LE(balance_test::largest_microbatch(plan), c.options.cap);
  if (plan.strategy == Strategy::lb_micro || plan.strategy == Strategy::verl_native ||
      plan.strategy == Strategy::verl_optimized) {
    EXPECT_TRUE(plan.equal_counts()) << to_string(plan.strategy);
  }
}

void expect_groups_together(const BalancePlan& plan, const GroupedCase& c) {
  std::map<std::int64_t, std::set<std::size_t>> ranks_of;
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    for (const std::size_t sample : samples_of_rank(plan.ranks[rank])) {
      ranks_of[c.groups[sample]].insert(rank);
    }
  }
  for (const auto& [group, ranks] : ranks_of) {
    EXPECT_EQ(ranks.size(), 1U) << "group " << group << ", " << to_string(plan.strategy);
  }
}

void expect_equal_samples(const BalancePlan& plan) {
  std::vector<std::size_t> counts;
  for (const auto& microbatches : plan.ranks) {
    counts.push_back(samples_of_rank(microbatches).size());
  }
  EXPECT_LE(std::ranges::max(counts) - std::ranges::min(counts), 1U) << to_string(plan.strategy);
}

TEST(Groups, stay_on_one_rank_under_every_strategy) {
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    GroupedCase c = grouped_case(random, random.between(1, 20), 0);
    for (const Strategy strategy : balance_test::k_all) {
      c.options.strategy = strategy;
      const BalancePlan plan = plan_minibatch(c.lengths, c.options).value();
      expect_valid(plan, c);
      expect_groups_together(plan, c);
      ASSERT_FALSE(::testing::Test::HasFailure()) << "round " << round;
    }
  }
}

TEST(Groups, of_one_sample_each_level_like_no_groups) {
  Random random(2);
  const std::vector<std::int64_t> lengths = random.longalign(64);
  std::vector<std::int64_t> groups(lengths.size());
  std::iota(groups.begin(), groups.end(), std::int64_t{0});
  BalanceOptions options = balance_test::options(Strategy::lb_mini, 8, 65536);
  const double alone = plan_minibatch(lengths, options)->on_demand.makespan;
  options.groups = groups;
  EXPECT_DOUBLE_EQ(plan_minibatch(lengths, options)->on_demand.makespan, alone);
}

TEST(Groups, are_levelled_by_all_their_samples) {
  const std::vector<std::int64_t> lengths = {10, 10, 10, 10, 12, 9, 9};
  const std::vector<std::int64_t> groups = {5, 5, 5, 5, 6, 7, 8};
  BalanceOptions options = balance_test::options(Strategy::lb_mini, 2, 100);
  options.cost = CostModel::make(0.0, 1.0).value();
  options.groups = groups;
  const BalancePlan plan = plan_minibatch(lengths, options).value();
  EXPECT_EQ(plan.on_demand.makespan, 40.0);
  EXPECT_EQ(plan.on_demand.lower_bound, 40.0);
}

TEST(EqualSamples, differ_by_one_at_most_under_every_strategy) {
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    GroupedCase c = grouped_case(random, random.between(1, 20), 0);
    c.options.groups = {};
    c.options.equal_samples = true;
    for (const Strategy strategy : balance_test::k_all) {
      c.options.strategy = strategy;
      const BalancePlan plan = plan_minibatch(c.lengths, c.options).value();
      expect_valid(plan, c);
      expect_equal_samples(plan);
      ASSERT_FALSE(::testing::Test::HasFailure()) << "round " << round;
    }
  }
}

TEST(EqualSamples, keep_groups_together_where_groups_divide) {
  Random random(4);
  for (int round = 0; round < 100; ++round) {
    const std::int64_t size = random.between(1, 6);
    GroupedCase c = grouped_case(random, 8 * random.between(1, 3), size);
    c.options.world_size = static_cast<int>(std::int64_t{1} << random.between(0, 3));
    c.options.equal_samples = true;
    for (const Strategy strategy : balance_test::k_all) {
      c.options.strategy = strategy;
      const BalancePlan plan = plan_minibatch(c.lengths, c.options).value();
      expect_valid(plan, c);
      expect_equal_samples(plan);
      expect_groups_together(plan, c);
      ASSERT_FALSE(::testing::Test::HasFailure()) << "round " << round;
    }
  }
}

TEST(EqualSamples, pair_groups_of_unlike_sizes) {
  const std::vector<std::int64_t> lengths(12, 10);
  const std::vector<std::int64_t> groups = {1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4, 4};
  for (const Strategy strategy :
       {Strategy::lb_micro, Strategy::lb_mini, Strategy::verl_optimized}) {
    BalanceOptions options = balance_test::options(strategy, 2, 20);
    options.groups = groups;
    options.equal_samples = true;
    const BalancePlan plan = plan_minibatch(lengths, options).value();
    EXPECT_EQ(samples_of_rank(plan.ranks[0]).size(), 6U) << to_string(strategy);
  }
}

TEST(EqualSamples, are_refused_where_groups_prevent_them) {
  const std::vector<std::int64_t> lengths(6, 10);
  const std::vector<std::int64_t> groups = {1, 1, 1, 1, 2, 2};
  for (const Strategy strategy : balance_test::k_all) {
    BalanceOptions options = balance_test::options(strategy, 2, 20);
    options.groups = groups;
    EXPECT_TRUE(plan_minibatch(lengths, options));
    options.equal_samples = true;
    EXPECT_THAT(plan_minibatch(lengths, options).error().message,
                HasSubstr("rank 0 would have 4 samples and rank 1 only 2"))
        << to_string(strategy);
  }
}

TEST(MinMicrobatches, are_on_every_rank_and_fillers_come_only_where_samples_are_too_few) {
  Random random(5);
  for (int round = 0; round < 200; ++round) {
    GroupedCase c = grouped_case(random, random.between(1, 20), 0);
    if (random.between(0, 1) == 0) {
      c.options.groups = {};
      c.options.equal_samples = random.between(0, 1) == 0;
    }
    c.options.min_microbatches = static_cast<int>(random.between(1, 7));
    const auto least = static_cast<std::size_t>(c.options.min_microbatches);
    for (const Strategy strategy : balance_test::k_all) {
      c.options.strategy = strategy;
      const BalancePlan plan = plan_minibatch(c.lengths, c.options).value();
      expect_valid(plan, c);
      for (const auto& microbatches : plan.ranks) {
        EXPECT_GE(microbatches.size(), least);
        EXPECT_GE(filled(microbatches), std::min(least, samples_of_rank(microbatches).size()))
            << to_string(strategy);
      }
      ASSERT_FALSE(::testing::Test::HasFailure()) << "round " << round;
    }
  }
}

TEST(Options, out_of_range_are_refused_by_name) {
  const std::vector<std::int64_t> lengths = {4, 4};
  const std::vector<std::int64_t> groups = {1};
  BalanceOptions options = balance_test::options(Strategy::none, 1, 8);
  options.groups = groups;
  EXPECT_THAT(plan_minibatch(lengths, options).error().message,
              HasSubstr("1 groups for 2 lengths"));
  options.groups = {};
  for (const int count : {-1, k_most_min_microbatches + 1}) {
    options.min_microbatches = count;
    EXPECT_THAT(plan_minibatch(lengths, options).error().message,
                HasSubstr("min_microbatches must lie between 0 and 65536"));
  }
}

TEST(Options, keep_lb_plans_no_slower_than_no_balancing) {
  Random random(6);
  for (int round = 0; round < 300; ++round) {
    GroupedCase c = grouped_case(random, random.between(1, 20), 0);
    if (round % 2 == 0) {
      c.options.groups = {};
      c.options.equal_samples = true;
    }
    c.options.strategy = Strategy::none;
    const BalancePlan none = plan_minibatch(c.lengths, c.options).value();
    c.options.strategy = Strategy::lb_micro;
    const BalancePlan micro = plan_minibatch(c.lengths, c.options).value();
    c.options.strategy = Strategy::lb_mini;
    const BalancePlan mini = plan_minibatch(c.lengths, c.options).value();
    constexpr double k_rounding = 1.0 + 1e-9;
    ASSERT_LE(micro.lockstep.makespan, none.lockstep.makespan * k_rounding) << "round " << round;
    ASSERT_LE(mini.on_demand.makespan, none.on_demand.makespan * k_rounding) << "round " << round;
  }
}

}  // namespace
}  // namespace headrace
