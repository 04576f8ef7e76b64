#include "balance/plan_timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "balance/support.h"

namespace headrace {
namespace {

using Spans = std::vector<std::vector<Span>>;

/// Costs by rank and microbatch; 0 is a filler.
BalancePlan plan_of(const std::vector<std::vector<double>>& costs) {
  BalancePlan plan;
  for (const auto& rank : costs) {
    auto& microbatches = plan.ranks.emplace_back();
    for (const double cost : rank) {
      Microbatch& microbatch = microbatches.emplace_back();
      microbatch.cost = cost;
      if (cost > 0.0) {
        microbatch.pieces = {{.sample = 0, .begin = 0, .tokens = 1}};
      }
    }
  }
  return with_predictions(plan, k_least_gain);
}

TEST(PlanTimeline, on_demand_ranks_run_one_microbatch_after_the_other) {
  EXPECT_EQ(timeline(plan_of({{3, 1}, {2}, {}}), Mode::on_demand),
            (Spans{{{0, 0, 3}, {1, 3, 4}}, {{0, 0, 2}}, {}}));
}

TEST(PlanTimeline, in_lockstep_each_microbatch_waits_for_all_ranks) {
  EXPECT_EQ(timeline(plan_of({{3, 1}, {2, 5}, {}}), Mode::lockstep),
            (Spans{{{0, 0, 3}, {1, 3, 4}}, {{0, 0, 2}, {1, 3, 8}}, {}}));
}

TEST(PlanTimeline, fillers_take_no_time_and_have_no_span) {
  EXPECT_EQ(timeline(plan_of({{3, 1}, {0, 2}}), Mode::lockstep),
            (Spans{{{0, 0, 3}, {1, 3, 4}}, {{1, 3, 5}}}));
}

TEST(PlanTimeline, ends_where_the_plan_predicts) {
  balance_test::Random random(7);
  for (const Strategy strategy : {Strategy::none, Strategy::lb_micro, Strategy::lb_mini}) {
    const BalancePlan plan =
        plan_minibatch(random.longalign(40), balance_test::options(strategy, 5, 65536)).value();
    for (const auto& [mode, prediction] :
         {std::pair{Mode::lockstep, plan.lockstep}, std::pair{Mode::on_demand, plan.on_demand}}) {
      double last = 0.0;
      double busy = 0.0;
      for (const auto& spans : timeline(plan, mode)) {
        double now = 0.0;
        for (const Span& span : spans) {
          EXPECT_GE(span.begin, now);
          now = span.end;
          last = std::max(last, span.end);
          busy += span.end - span.begin;
        }
      }
      EXPECT_NEAR(last, prediction.makespan, 1e-9 * last);
      EXPECT_NEAR(1.0 - busy / (5 * last), prediction.bubble, 1e-9);
    }
  }
}

TEST(PlanTimeline, unequal_counts_never_run_in_lockstep) {
  const BalancePlan equal = plan_of({{3}, {3}});
  EXPECT_EQ(equal.recommendation, Mode::lockstep);
  EXPECT_EQ(auto_mode(equal), Mode::lockstep);
  const BalancePlan unequal = plan_of({{3}, {2, 1}});
  EXPECT_EQ(auto_mode(unequal), Mode::on_demand);
  // Here both modes take 3 + 1, but the second rank has one microbatch.
  const BalancePlan padded = plan_of({{3, 1}, {3}});
  EXPECT_EQ(padded.recommendation, Mode::lockstep);
  EXPECT_EQ(auto_mode(padded), Mode::on_demand);
  EXPECT_EQ(auto_mode(padded_for_lockstep(padded)), Mode::lockstep);
}

}  // namespace
}  // namespace headrace
