#include "balance/lower_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <vector>

#include "balance/brute_force.h"
#include "balance/support.h"

namespace headrace {
namespace {

using balance_test::Random;
constexpr double k_rounding = 1e-9;

/// Owns what a problem refers to.
struct SmallCase {
  std::vector<std::int64_t> sizes;
  std::vector<double> costs;
  BalanceOptions options = balance_test::options(Strategy::none, 1, 1);

  PackingProblem problem() const {
    return {.sizes = sizes,
            .costs = costs,
            .ranks = static_cast<std::size_t>(options.world_size),
            .cap = options.cap,
            .per_microbatch = options.cost.per_microbatch()};
  }
};

SmallCase small_case(Random& random) {
  SmallCase result;
  result.options.world_size = static_cast<int>(random.between(1, 4));
  result.options.cap = random.between(20, 100);
  result.options.cost = CostModel::make(random.unit() * 0.02, random.unit() + 0.01,
                                        random.between(0, 1) == 0 ? 0.0 : random.unit() * 50.0)
                            .value();
  const std::int64_t longest = random.between(5, result.options.cap);
  for (std::int64_t left = random.between(1, 8); left > 0; --left) {
    result.sizes.push_back(random.between(1, longest));
    result.costs.push_back(result.options.cost.sample(result.sizes.back()));
  }
  return result;
}

TEST(LowerBound, is_never_above_the_optimum_of_small_cases_and_often_meets_it) {
  Random random(1);
  constexpr int k_cases = 400;
  double lockstep = 0.0;
  double on_demand = 0.0;
  for (int round = 0; round < k_cases; ++round) {
    const SmallCase c = small_case(random);
    const balance_test::Optimum optimum = balance_test::BruteForce(c.problem()).optimum();
    const LowerBounds bounds = lower_bounds(c.problem());
    ASSERT_LE(bounds.lockstep, optimum.lockstep * (1 + k_rounding)) << "round " << round;
    ASSERT_LE(bounds.on_demand, optimum.on_demand * (1 + k_rounding)) << "round " << round;
    ASSERT_LE(bounds.on_demand, bounds.lockstep);
    lockstep += bounds.lockstep / optimum.lockstep / k_cases;
    on_demand += bounds.on_demand / optimum.on_demand / k_cases;
  }
  std::printf("lower bound over optimum: lockstep %.3f, on-demand %.3f\n", lockstep, on_demand);
  EXPECT_GT(lockstep, 0.85);
  EXPECT_GT(on_demand, 0.85);
}

TEST(Optimum, of_small_cases_is_met_by_lb_mini_and_almost_met_by_lb_micro) {
  Random random(2);
  constexpr int k_cases = 400;
  double micro = 0.0;
  double mini = 0.0;
  for (int round = 0; round < k_cases; ++round) {
    SmallCase c = small_case(random);
    const balance_test::Optimum optimum = balance_test::BruteForce(c.problem()).optimum();
    c.options.strategy = Strategy::lb_micro;
    const double lockstep = plan_minibatch(c.sizes, c.options)->lockstep.makespan;
    c.options.strategy = Strategy::lb_mini;
    const double on_demand = plan_minibatch(c.sizes, c.options)->on_demand.makespan;
    ASSERT_GE(lockstep, optimum.lockstep * (1 - k_rounding)) << "round " << round;
    ASSERT_GE(on_demand, optimum.on_demand * (1 - k_rounding)) << "round " << round;
    micro += lockstep / optimum.lockstep / k_cases;
    mini += on_demand / optimum.on_demand / k_cases;
  }
  std::printf("makespan over optimum: lb-micro %.4f, lb-mini %.4f\n", micro, mini);
  EXPECT_LT(micro, 1.01);
  EXPECT_LT(mini, 1.01);
}

/// Costs equal sizes, no groups.
LowerBounds bounds_of(const std::vector<std::int64_t>& sizes, std::size_t ranks, std::int64_t cap,
                      double per_microbatch = 0.0) {
  const std::vector<double> costs(sizes.begin(), sizes.end());
  return lower_bounds({.sizes = sizes,
                       .costs = costs,
                       .ranks = ranks,
                       .cap = cap,
                       .per_microbatch = per_microbatch});
}

TEST(LowerBound, is_the_largest_sample_or_an_equal_share) {
  EXPECT_EQ(bounds_of({90, 10, 20}, 4, 100).on_demand, 90.0);
  EXPECT_EQ(bounds_of({30, 30, 30, 30}, 3, 100).on_demand, 60.0);  // two of four on one rank
  EXPECT_EQ(bounds_of({10, 10, 10, 10}, 2, 100).on_demand, 20.0);
}

// Three microbatches on two ranks cost one of them two.
TEST(LowerBound, counts_the_fewest_microbatches) {
  EXPECT_EQ(bounds_of({6, 6, 6}, 2, 10, 1000.0).on_demand, 2012.0);
  EXPECT_EQ(bounds_of({9, 9, 9, 1, 1}, 1, 10, 100.0).on_demand, 329.0);
}

// Samples above half the cap share no microbatch, so that two ranks need two steps.
TEST(LowerBound, of_lockstep_adds_the_costliest_of_every_step) {
  const LowerBounds bounds = bounds_of({90, 80, 70, 60}, 2, 100);
  EXPECT_EQ(bounds.on_demand, 150.0);
  EXPECT_EQ(bounds.lockstep, 90.0 + 70.0);
}

TEST(LowerBound, keeps_groups_together) {
  const std::vector<std::int64_t> sizes = {10, 10, 10, 10, 10, 10};
  const std::vector<double> costs(6, 10.0);
  const std::vector<std::size_t> groups = {0, 0, 0, 0, 1, 1};
  EXPECT_EQ(lower_bounds({.sizes = sizes, .costs = costs, .ranks = 2, .cap = 100, .groups = groups})
                .on_demand,
            40.0);
}

TEST(LowerBound, counts_microbatches_of_sizes_whose_sum_has_no_63_bits) {
  constexpr std::int64_t k_most = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::int64_t> sizes = {k_most, k_most - 5, k_most / 2, k_most / 2};
  EXPECT_EQ(fewest_microbatches(sizes, k_most), 3U);
}

TEST(LowerBound, stands_in_every_plan_and_is_never_above_its_makespan) {
  Random random(3);
  for (const Strategy strategy : balance_test::k_all) {
    const BalancePlan plan =
        plan_minibatch(random.longalign(40), balance_test::options(strategy, 8, 65536)).value();
    EXPECT_GT(plan.on_demand.lower_bound, 0.0);
    EXPECT_LE(plan.on_demand.lower_bound, plan.on_demand.makespan);
    EXPECT_LE(plan.lockstep.lower_bound, plan.lockstep.makespan);
    EXPECT_GE(plan.lockstep.lower_bound, plan.on_demand.lower_bound);
  }
}

}  // namespace
}  // namespace headrace
