#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <limits>
#include <vector>

#include "balance/support.h"

namespace headrace {
namespace {

void expect_valid(const std::vector<std::int64_t>& lengths, const BalanceOptions& options) {
  const Result<BalancePlan> plan = plan_minibatch(lengths, options);
  ASSERT_TRUE(plan) << plan.error().describe();
  EXPECT_EQ(balance_test::samples_of(*plan), balance_test::each_once(lengths.size()))
      << to_string(options.strategy);
  EXPECT_LE(balance_test::largest_microbatch(*plan), options.cap) << to_string(options.strategy);
  EXPECT_GE(plan->on_demand.makespan, plan->on_demand.lower_bound);
}

TEST(Extremes, lengths_near_the_limits_of_32_and_40_bits_do_not_overflow) {
  for (const std::int64_t near : {std::int64_t{1} << 31, std::int64_t{1} << 40}) {
    std::vector<std::int64_t> lengths;
    for (std::int64_t i = -8; i < 8; ++i) {
      lengths.push_back(near + i);
    }
    for (const Strategy strategy : balance_test::k_all) {
      BalanceOptions options = balance_test::options(strategy, 3, 2 * near + 100);
      expect_valid(lengths, options);
      options.alignment = 64;
      expect_valid(lengths, options);
    }
  }
}

TEST(Extremes, a_cap_of_63_bits_holds_what_has_63_bits) {
  constexpr std::int64_t k_most = std::numeric_limits<std::int64_t>::max();
  for (const Strategy strategy : balance_test::k_all) {
    expect_valid({k_most - 3, 1, 1, 1}, balance_test::options(strategy, 2, k_most));
  }
}

TEST(Extremes, equal_lengths_are_spread_evenly) {
  const std::vector<std::int64_t> lengths(96, 1000);
  for (const Strategy strategy : balance_test::k_all) {
    const BalanceOptions options = balance_test::options(strategy, 8, 4000);
    expect_valid(lengths, options);
    EXPECT_LT(plan_minibatch(lengths, options)->on_demand.bubble, 1e-12) << to_string(strategy);
    EXPECT_LT(plan_minibatch(lengths, options)->lockstep.bubble, 1e-12) << to_string(strategy);
  }
}

TEST(Extremes, a_giant_sample_sets_the_makespan) {
  std::vector<std::int64_t> lengths(100, 10);
  lengths[57] = 100'000;
  for (const Strategy strategy : balance_test::k_all) {
    expect_valid(lengths, balance_test::options(strategy, 8, 100'000));
  }
  const BalancePlan plan =
      plan_minibatch(lengths, balance_test::options(Strategy::lb_mini, 8, 100'000)).value();
  EXPECT_EQ(plan.on_demand.makespan, balance_test::cost_1_5b().sample(100'000));
}

TEST(Extremes, samples_above_half_the_cap_are_alone) {
  balance_test::Random random(1);
  std::vector<std::int64_t> lengths(50);
  for (std::int64_t& length : lengths) {
    length = random.between(501, 1000);
  }
  for (const Strategy strategy : balance_test::k_all) {
    const BalanceOptions options = balance_test::options(strategy, 4, 1000);
    expect_valid(lengths, options);
    const BalancePlan plan = plan_minibatch(lengths, options).value();
    for (const auto& microbatches : plan.ranks) {
      for (const Microbatch& microbatch : microbatches) {
        EXPECT_LE(microbatch.pieces.size(), 1U);
      }
    }
  }
}

TEST(Extremes, one_sample_on_many_ranks_and_many_on_one) {
  for (const Strategy strategy : balance_test::k_all) {
    expect_valid({5}, balance_test::options(strategy, 1000, 5));
    expect_valid(std::vector<std::int64_t>(500, 3), balance_test::options(strategy, 1, 10));
  }
}

// Under sanitizers a twentieth of that.
TEST(Extremes, a_million_lengths_are_planned_in_seconds) {
  const std::size_t count = balance_test::k_slow_build ? 50'000 : 1'000'000;
  const std::vector<std::int64_t> lengths = workload_lengths(Workload::longalign, count, 1);
  for (const Strategy strategy : balance_test::k_all) {
    const BalanceOptions options = balance_test::options(strategy, 8, 65536);
    const double begin = balance_test::thread_seconds();
    const BalancePlan plan = plan_minibatch(lengths, options).value();
    const double seconds = balance_test::thread_seconds() - begin;
    std::printf("plan of %zu samples on 8 ranks, %s: %.2f s\n", count, to_string(strategy),
                seconds);
    EXPECT_LT(seconds, 10.0 * balance_test::slowdown_allowed());
    EXPECT_EQ(balance_test::samples_of(plan), balance_test::each_once(lengths.size()));
    EXPECT_LE(balance_test::largest_microbatch(plan), 65536);
  }
}

}  // namespace
}  // namespace headrace
