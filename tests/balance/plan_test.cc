#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "balance/balance_plan.h"
#include "balance/plan_io.h"
#include "balance/support.h"

namespace headrace {
namespace {

using balance_test::Random;
using ::testing::HasSubstr;

Microbatch microbatch(std::size_t sample, std::int64_t tokens, double cost) {
  return {
      .pieces = {{.sample = sample, .begin = 0, .tokens = tokens}}, .tokens = tokens, .cost = cost};
}

/// Rank 0 runs costs 4, 1, 1; rank 1 runs 2, 3.
BalancePlan two_ranks() {
  BalancePlan plan;
  plan.strategy = Strategy::lb_mini;
  plan.cap = 8;
  plan.on_demand.lower_bound = 5.5;
  plan.ranks = {{microbatch(0, 8, 4.0), microbatch(1, 8, 1.0), microbatch(2, 8, 1.0)},
                {microbatch(3, 4, 2.0), microbatch(4, 4, 3.0)}};
  return plan;
}

TEST(BalancePlan, predicts_both_modes_from_its_microbatches) {
  const BalancePlan plan = with_predictions(two_ranks(), 0.02);
  EXPECT_EQ(plan.rank_costs, (std::vector<double>{6.0, 5.0}));
  EXPECT_EQ(plan.tokens, 32);
  EXPECT_DOUBLE_EQ(plan.lockstep.makespan, 4.0 + 3.0 + 1.0);
  EXPECT_DOUBLE_EQ(plan.lockstep.bubble, 1.0 - 11.0 / 16.0);
  EXPECT_DOUBLE_EQ(plan.on_demand.makespan, 6.0);
  EXPECT_EQ(plan.on_demand.lower_bound, 5.5);  // as it was
  EXPECT_DOUBLE_EQ(plan.on_demand.bubble, 1.0 - 11.0 / 12.0);
}

TEST(BalancePlan, recommends_on_demand_only_above_the_least_gain) {
  EXPECT_EQ(with_predictions(two_ranks(), 0.24).recommendation, Mode::on_demand);  // gains 0.25
  EXPECT_EQ(with_predictions(two_ranks(), 0.26).recommendation, Mode::lockstep);
}

TEST(BalancePlan, padding_adds_fillers_that_cost_nothing_and_change_no_prediction) {
  const BalancePlan plan = with_predictions(two_ranks(), 0.02);
  EXPECT_FALSE(plan.equal_counts());
  const BalancePlan padded = with_predictions(padded_for_lockstep(plan), 0.02);
  EXPECT_TRUE(padded.equal_counts());
  ASSERT_EQ(padded.ranks[1].size(), 3U);
  EXPECT_TRUE(padded.ranks[1][2].filler());
  EXPECT_EQ(padded.ranks[1][2].tokens, 0);
  EXPECT_EQ(padded.lockstep, plan.lockstep);
  EXPECT_EQ(padded.on_demand, plan.on_demand);
  EXPECT_NE(padded.digest(), plan.digest());
}

TEST(BalancePlan, digest_tells_apart_everything_that_ranks_must_agree_on) {
  const BalancePlan plan = two_ranks();
  EXPECT_EQ(plan.digest(), two_ranks().digest());
  BalancePlan other = two_ranks();
  other.ranks[0][1].pieces[0].sample = 7;
  EXPECT_NE(other.digest(), plan.digest());
  other = two_ranks();
  other.ranks[0][1].pieces[0].tokens = 7;
  EXPECT_NE(other.digest(), plan.digest());
  other = two_ranks();
  std::swap(other.ranks[0], other.ranks[1]);
  EXPECT_NE(other.digest(), plan.digest());
  other = two_ranks();
  std::swap(other.ranks[0][0], other.ranks[0][1]);
  EXPECT_NE(other.digest(), plan.digest());
  const std::vector<std::int64_t> keys = {5, 6};
  const std::vector<std::int64_t> swapped = {6, 5};
  EXPECT_NE(plan.digest(keys), plan.digest());
  EXPECT_NE(plan.digest(keys), plan.digest(swapped));
}

TEST(PlanIo, reads_back_what_it_wrote) {
  Random random(13);
  for (const Strategy strategy : balance_test::k_all) {
    BalanceOptions options = balance_test::options(strategy, 5, 20'000);
    options.oversize = Oversize::split;
    const BalancePlan plan = plan_minibatch(random.longalign(23), options).value();
    ASSERT_FALSE(plan.oversize.empty());
    const Result<BalancePlan> read = plan_from_json(to_json(plan));
    ASSERT_TRUE(read) << read.error().describe();
    EXPECT_EQ(*read, plan);
  }
}

TEST(PlanIo, is_readable_by_tools) {
  const std::string text = to_json(with_predictions(two_ranks(), 0.02));
  EXPECT_THAT(text, HasSubstr(R"("strategy":"lb-mini","cap":8)"));
  EXPECT_THAT(text, HasSubstr(R"("recommendation":"on-demand")"));
  EXPECT_THAT(text, HasSubstr(R"("makespan":6.0,"bubble":0.08333333333333337,"lower_bound":5.5)"));
  EXPECT_THAT(text, HasSubstr(R"({"tokens":4,"cost":3.0,"pieces":[[4,0,4]]})"));
}

TEST(PlanIo, refuses_what_is_not_a_plan_and_says_why) {
  EXPECT_THAT(plan_from_json("{").error().message, HasSubstr("not JSON"));
  EXPECT_THAT(plan_from_json("[]").error().message, HasSubstr("'strategy'"));
  EXPECT_THAT(plan_from_json(R"({"strategy":"best"})").error().message, HasSubstr("'best'"));
  EXPECT_THAT(plan_from_json(R"({"strategy":"none","cap":"8"})").error().message,
              HasSubstr("'cap' in a plan must be an integer"));
  std::string text = to_json(with_predictions(two_ranks(), 0.02));
  const std::size_t piece = text.find("[4,0,4]");
  text.replace(piece, 7, "[1,0,4]");
  EXPECT_THAT(plan_from_json(text).error().message, HasSubstr("digest"));
}

TEST(Names, are_those_that_users_write) {
  for (const Strategy strategy : balance_test::k_all) {
    EXPECT_EQ(parse_strategy(to_string(strategy)).value(), strategy);
  }
  EXPECT_THAT(parse_strategy("lb_mini").error().message,
              HasSubstr("none, sorted, lb-micro, lb-mini, verl-native, verl-optimized"));
  for (const Mode mode : {Mode::lockstep, Mode::on_demand}) {
    EXPECT_EQ(parse_mode(to_string(mode)).value(), mode);
  }
  EXPECT_THAT(parse_mode("fast").error().message, HasSubstr("'fast'"));
}

}  // namespace
}  // namespace headrace
