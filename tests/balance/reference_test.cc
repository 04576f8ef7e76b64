#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <span>
#include <vector>

#include "balance/plain_reference.h"
#include "balance/support.h"

namespace headrace {
namespace {

using balance_test::Random;
using balance_test::ReferencePlan;
constexpr double k_rounding = 1.0 + 1e-9;

struct Case {
  std::vector<std::int64_t> lengths;
  std::vector<double> costs;
  BalanceOptions options = balance_test::options(Strategy::lb_mini, 1, 1);
};

/// As many samples on every rank, from one of the workloads, under a cap between the longest and a
/// few times as much.
Case random_case(Random& random) {
  Case c;
  const std::span<const Workload> all = workloads();
  const Workload workload =
      all[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(all.size()) - 1))];
  c.options.world_size = static_cast<int>(random.between(1, 16));
  const std::int64_t count = c.options.world_size * random.between(1, 8);
  c.lengths = workload_lengths(workload, static_cast<std::size_t>(count),
                               static_cast<std::uint64_t>(random.between(0, 1 << 30)));
  const std::int64_t longest = std::ranges::max(c.lengths);
  c.options.cap = random.between(longest, 4 * longest);
  if (random.between(0, 3) == 0) {
    c.options.cost =
        CostModel::make(c.options.cost.quadratic(), c.options.cost.linear(), random.unit()).value();
  }
  for (const std::int64_t length : c.lengths) {
    c.costs.push_back(c.options.cost.sample(length));
  }
  return c;
}

ReferencePlan reference(const Case& c, bool retry) {
  return balance_test::reference_plan(c.lengths, c.costs,
                                      static_cast<std::size_t>(c.options.world_size), c.options.cap,
                                      c.options.cost.per_microbatch(), retry);
}

TEST(Reference, is_never_faster_than_ours_on_1000_random_cases) {
  Random random(1);
  double micro_gain = 0.0;
  double mini_gain = 0.0;
  constexpr int k_cases = 1000;
  for (int round = 0; round < k_cases; ++round) {
    Case c = random_case(random);
    const ReferencePlan theirs = reference(c, /*retry=*/true);
    c.options.strategy = Strategy::lb_micro;
    const double micro = plan_minibatch(c.lengths, c.options)->lockstep.makespan;
    c.options.strategy = Strategy::lb_mini;
    const double mini = plan_minibatch(c.lengths, c.options)->on_demand.makespan;
    EXPECT_LE(micro, theirs.lockstep * k_rounding) << "round " << round;
    EXPECT_LE(mini, theirs.on_demand * k_rounding) << "round " << round;
    micro_gain += theirs.lockstep / micro / k_cases;
    mini_gain += theirs.on_demand / mini / k_cases;
  }
  std::printf("reference's makespan over ours, mean of %d: lb-micro %.3f, lb-mini %.3f\n", k_cases,
              micro_gain, mini_gain);
}

TEST(Reference, without_retries_breaks_the_cap_where_ours_never_does) {
  Random random(2);
  int broken = 0;
  constexpr int k_cases = 200;
  for (int round = 0; round < k_cases; ++round) {
    const std::vector<std::int64_t> lengths = random.longalign(256);
    std::vector<double> costs;
    for (const std::int64_t length : lengths) {
      costs.push_back(balance_test::cost_1_5b().sample(length));
    }
    broken += balance_test::reference_plan(lengths, costs, 8, 65536, 0.0, /*retry=*/false).over_cap
                  ? 1
                  : 0;
    for (const Strategy strategy : balance_test::k_all) {
      ASSERT_LE(balance_test::largest_microbatch(
                    plan_minibatch(lengths, balance_test::options(strategy, 8, 65536)).value()),
                65536);
    }
  }
  std::printf("ceil(total / cap) microbatches broke the cap in %d of %d minibatches\n", broken,
              k_cases);
  EXPECT_GT(broken, k_cases / 5);
}

// Both are the two-level rule; ours counts microbatches by first-fit.
TEST(Reference, makes_the_ranks_of_verl_optimized) {
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    Case c = random_case(random);
    c.options.strategy = Strategy::verl_optimized;
    c.options.cost = balance_test::cost_1_5b();
    c.costs.clear();
    for (const std::int64_t length : c.lengths) {
      c.costs.push_back(c.options.cost.sample(length));
    }
    ASSERT_NEAR(plan_minibatch(c.lengths, c.options)->on_demand.makespan /
                    reference(c, /*retry=*/true).on_demand,
                1.0, 0.01)
        << "round " << round;
  }
}

}  // namespace
}  // namespace headrace
