#include "balance/communication_model.h"

#include <gtest/gtest.h>

#include "balance/support.h"

namespace headrace {
namespace {

using balance_test::options;
using balance_test::Random;

Microbatch microbatch(double cost) {
  return {.pieces = {{.sample = 0, .begin = 0, .tokens = 1}}, .tokens = 1, .cost = cost};
}

/// Rank 0 runs costs 4, 1; rank 1 runs 2 and a filler.
BalancePlan two_ranks() {
  BalancePlan plan;
  plan.ranks = {{microbatch(4), microbatch(1)}, {microbatch(2), Microbatch{}}};
  return with_predictions(plan, 0.02);
}

constexpr CommunicationModel k_model{.gather = 0.5,
                                     .push = 1.5,
                                     .on_demand_minibatch = 0.25,
                                     .all_gather = 0.125,
                                     .reduce_scatter = 0.375,
                                     .lockstep_minibatch = 0.0625};

TEST(CommunicationModel, without_communication_a_step_takes_its_makespan) {
  const BalancePlan plan = two_ranks();
  EXPECT_EQ(step_time(plan, Mode::on_demand, {}), plan.on_demand.makespan);
  EXPECT_EQ(step_time(plan, Mode::lockstep, {}), plan.lockstep.makespan);
}

TEST(CommunicationModel, adds_a_ranks_own_microbatches_on_demand_and_every_step_in_lockstep) {
  EXPECT_DOUBLE_EQ(step_time(two_ranks(), Mode::on_demand, k_model), 5 + 2 * 2 + 0.25);
  EXPECT_DOUBLE_EQ(step_time(two_ranks(), Mode::lockstep, k_model), 5 + 2 * 0.5 + 0.0625);
}

TEST(CommunicationModel, a_filler_communicates_in_lockstep_alone) {
  BalancePlan plan;
  plan.ranks = {{microbatch(3)}, {Microbatch{}}};
  EXPECT_DOUBLE_EQ(step_time(plan, Mode::on_demand, k_model), 3 + 2 + 0.25);
  plan.ranks = {{Microbatch{}}, {Microbatch{}}};
  EXPECT_DOUBLE_EQ(step_time(plan, Mode::on_demand, k_model), 0.25);
  EXPECT_DOUBLE_EQ(step_time(plan, Mode::lockstep, k_model), 0.5 + 0.0625);
}

TEST(CommunicationModel, dear_pushes_turn_the_recommendation_of_a_plan_that_compute_gives_away) {
  Random random(7);
  const std::vector<std::int64_t> lengths = random.longalign(32);
  BalanceOptions given = options(Strategy::lb_mini, 8, 65'536);
  const BalancePlan compute_alone = plan_minibatch(lengths, given).value();
  ASSERT_EQ(compute_alone.recommendation, Mode::on_demand);
  given.communication.push = compute_alone.lockstep.makespan;
  const BalancePlan dear = plan_minibatch(lengths, given).value();
  EXPECT_EQ(dear.recommendation, Mode::lockstep);
  EXPECT_EQ(dear.digest(), compute_alone.digest());  // packing does not read it
}

TEST(CommunicationModel, the_least_gain_counts_on_whole_steps) {
  const BalancePlan plan = two_ranks();                       // 5 on demand, 5 in lockstep
  const CommunicationModel dear_lockstep{.all_gather = 0.5};  // 6 in lockstep
  EXPECT_EQ(recommend(plan, dear_lockstep, 0.16), Mode::on_demand);
  EXPECT_EQ(recommend(plan, dear_lockstep, 0.17), Mode::lockstep);
}

}  // namespace
}  // namespace headrace
