#include "balance/strategies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

#include "balance/support.h"

namespace headrace {
namespace {

using balance_test::Random;
using ::testing::HasSubstr;

using balance_test::k_all;

struct RandomCase {
  std::vector<std::int64_t> lengths;
  BalanceOptions options = balance_test::options(Strategy::none, 1, 1);
};

RandomCase random_case(Random& random) {
  RandomCase result;
  result.options.world_size = static_cast<int>(random.between(1, 16));
  result.options.cap = random.between(64, 4096);
  result.lengths.resize(static_cast<std::size_t>(random.between(1, 80)));
  const std::int64_t longest = random.between(1, result.options.cap);
  for (std::int64_t& length : result.lengths) {
    length = random.between(1, longest);
  }
  result.options.cost = CostModel::make(random.unit() * 1e-3, random.unit() + 0.01,
                                        random.between(0, 1) == 0 ? 0.0 : random.unit() * 500.0)
                            .value();
  return result;
}

TEST(Strategies, hold_the_cap_and_train_every_sample_once) {
  Random random(1);
  for (int round = 0; round < 1000; ++round) {
    RandomCase c = random_case(random);
    for (const Strategy strategy : k_all) {
      c.options.strategy = strategy;
      const BalancePlan plan = plan_minibatch(c.lengths, c.options).value();
      ASSERT_EQ(plan.world_size(), c.options.world_size);
      ASSERT_EQ(balance_test::samples_of(plan), balance_test::each_once(c.lengths.size()));
      ASSERT_LE(balance_test::largest_microbatch(plan), c.options.cap);
      for (const auto& rank : plan.ranks) {
        for (const Microbatch& microbatch : rank) {
          std::int64_t tokens = 0;
          double cost = microbatch.filler() ? 0.0 : c.options.cost.per_microbatch();
          for (const SamplePiece& piece : microbatch.pieces) {
            ASSERT_EQ(piece.begin, 0);
            ASSERT_EQ(piece.tokens, c.lengths[piece.sample]);
            tokens += piece.tokens;
            cost += c.options.cost.sample(piece.tokens);
          }
          ASSERT_EQ(microbatch.tokens, tokens);
          ASSERT_DOUBLE_EQ(microbatch.cost, cost);
        }
      }
    }
  }
}

TEST(Strategies, are_never_slower_than_no_balancing) {
  Random random(2);
  for (int round = 0; round < 1000; ++round) {
    RandomCase c = random_case(random);
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

TEST(Strategies, lb_micro_gives_every_rank_as_many_microbatches_and_no_step_without_work) {
  Random random(3);
  for (int round = 0; round < 500; ++round) {
    RandomCase c = random_case(random);
    c.options.strategy = Strategy::lb_micro;
    const BalancePlan plan = plan_minibatch(c.lengths, c.options).value();
    ASSERT_TRUE(plan.equal_counts());
    for (std::size_t step = 0; step < plan.ranks[0].size(); ++step) {
      bool work = false;
      for (const auto& rank : plan.ranks) {
        work = work || !rank[step].filler();
      }
      ASSERT_TRUE(work) << "step " << step << " of round " << round;
    }
  }
}

TEST(Strategies, lb_mini_and_none_have_no_fillers) {
  Random random(4);
  for (int round = 0; round < 300; ++round) {
    RandomCase c = random_case(random);
    for (const Strategy strategy : {Strategy::none, Strategy::lb_mini}) {
      c.options.strategy = strategy;
      const BalancePlan plan = plan_minibatch(c.lengths, c.options).value();
      for (const auto& rank : plan.ranks) {
        for (const Microbatch& microbatch : rank) {
          ASSERT_FALSE(microbatch.filler());
        }
      }
    }
  }
}

TEST(Strategies, none_is_round_robin_with_one_sample_a_microbatch) {
  const std::vector<std::int64_t> lengths = {5, 1, 4, 2, 3};
  const BalancePlan plan =
      plan_minibatch(lengths, balance_test::options(Strategy::none, 2, 8)).value();
  const std::vector<std::vector<std::size_t>> expected = {{0, 2, 4}, {1, 3}};
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(plan.ranks[rank].size(), expected[rank].size());
    for (std::size_t i = 0; i < expected[rank].size(); ++i) {
      EXPECT_EQ(
          plan.ranks[rank][i].pieces,
          (std::vector<SamplePiece>{
              {.sample = expected[rank][i], .begin = 0, .tokens = lengths[expected[rank][i]]}}));
    }
  }
}

TEST(Strategies, lb_micro_fills_with_fillers_where_samples_are_too_few) {
  const std::vector<std::int64_t> lengths = {5, 3, 2};
  const BalancePlan plan =
      plan_minibatch(lengths, balance_test::options(Strategy::lb_micro, 4, 10)).value();
  EXPECT_EQ(balance_test::samples_of(plan), balance_test::each_once(3));
  int fillers = 0;
  for (const auto& rank : plan.ranks) {
    ASSERT_EQ(rank.size(), 1U);
    fillers += rank[0].filler() ? 1 : 0;
  }
  EXPECT_EQ(fillers, 1);
}

// One costly sample and seven cheap ones that together cost less: lockstep needs one step, none
// waits in four.
TEST(Strategies, lb_micro_packs_cheap_samples_beside_a_costly_one) {
  const std::vector<std::int64_t> lengths = {1000, 10, 10, 10, 10, 10, 10, 10};
  const BalancePlan plan =
      plan_minibatch(lengths, balance_test::options(Strategy::lb_micro, 2, 1000)).value();
  EXPECT_EQ(plan.ranks[0].size(), 1U);
  EXPECT_DOUBLE_EQ(plan.lockstep.makespan, balance_test::cost_1_5b().sample(1000));
}

// Where each microbatch costs much by itself, fewer of them beat an equal spread of tokens.
TEST(Strategies, lb_mini_weighs_the_fixed_cost_of_a_microbatch) {
  BalanceOptions options = balance_test::options(Strategy::lb_mini, 2, 10);
  options.cost = CostModel::make(0.0, 1.0, 1000.0).value();
  const std::vector<std::int64_t> lengths = {6, 6, 4, 4};
  const BalancePlan plan = plan_minibatch(lengths, options).value();
  EXPECT_EQ(plan.ranks[0].size(), 1U);
  EXPECT_EQ(plan.ranks[1].size(), 1U);
  EXPECT_DOUBLE_EQ(plan.on_demand.makespan, 1010.0);
}

TEST(Strategies, count_aligned_lengths_towards_the_cap) {
  BalanceOptions options = balance_test::options(Strategy::lb_mini, 1, 16);
  const std::vector<std::int64_t> lengths = {5, 5, 5};
  EXPECT_EQ(plan_minibatch(lengths, options)->ranks[0].size(), 1U);
  options.alignment = 8;
  const BalancePlan plan = plan_minibatch(lengths, options).value();
  EXPECT_EQ(plan.ranks[0].size(), 2U);
  EXPECT_EQ(plan.tokens, 15);
}

TEST(Strategies, pieces_of_a_split_sample_stay_under_the_cap_and_cover_it) {
  Random random(6);
  for (const Strategy strategy : k_all) {
    BalanceOptions options = balance_test::options(strategy, 3, 10'000);
    options.oversize = Oversize::split;
    const std::vector<std::int64_t> lengths = random.longalign(12);
    const BalancePlan plan = plan_minibatch(lengths, options).value();
    std::vector<std::int64_t> covered(lengths.size(), 0);
    for (const auto& rank : plan.ranks) {
      for (const Microbatch& microbatch : rank) {
        for (const SamplePiece& piece : microbatch.pieces) {
          covered[piece.sample] += piece.tokens;
        }
      }
    }
    EXPECT_EQ(covered, lengths);
    EXPECT_LE(balance_test::largest_microbatch(plan), 10'000);
    EXPECT_EQ(plan.tokens_lost, 0);
  }
}

TEST(Strategies, report_what_truncate_and_drop_lose) {
  const std::vector<std::int64_t> lengths = {4, 9, 12};
  BalanceOptions options = balance_test::options(Strategy::lb_mini, 2, 8);
  options.oversize = Oversize::truncate;
  const BalancePlan truncated = plan_minibatch(lengths, options).value();
  EXPECT_EQ(truncated.tokens_lost, 5);
  EXPECT_EQ(truncated.tokens, 20);
  EXPECT_EQ(truncated.oversize, (std::vector<std::size_t>{1, 2}));
  options.oversize = Oversize::drop;
  const BalancePlan dropped = plan_minibatch(lengths, options).value();
  EXPECT_EQ(dropped.tokens_lost, 21);
  EXPECT_EQ(balance_test::samples_of(dropped), std::vector<std::size_t>{0});
}

TEST(Strategies, refuse_a_world_without_ranks_and_costs_that_overflow) {
  const std::vector<std::int64_t> lengths = {4};
  EXPECT_THAT(plan_minibatch(lengths, balance_test::options(Strategy::none, 0, 8)).error().message,
              HasSubstr("world size must be at least 1, not 0"));
  BalanceOptions options = balance_test::options(Strategy::none, 1, 8);
  options.cost = CostModel::make(1e308, 1.0).value();
  EXPECT_THAT(plan_minibatch(lengths, options).error().message, HasSubstr("not finite"));
}

TEST(Strategies, plan_identically_every_time) {
  Random random(8);
  const std::vector<std::int64_t> lengths = random.longalign(200);
  for (const Strategy strategy : k_all) {
    const BalanceOptions options = balance_test::options(strategy, 8, 65536);
    EXPECT_EQ(plan_minibatch(lengths, options).value(), plan_minibatch(lengths, options).value());
  }
}

TEST(Strategies, small_search_limits_still_give_a_valid_plan) {
  Random random(10);
  const std::vector<std::int64_t> lengths = random.longalign(64);
  for (const Strategy strategy : k_all) {
    BalanceOptions options = balance_test::options(strategy, 8, 65536);
    options.exchange_rounds = 0;
    options.exchange_trials = 0;
    options.placement_trials = 0;
    const BalancePlan plan = plan_minibatch(lengths, options).value();
    EXPECT_EQ(balance_test::samples_of(plan), balance_test::each_once(64));
    EXPECT_LE(balance_test::largest_microbatch(plan), 65536);
  }
}

TEST(PlanSpeed, of_256_samples_on_8_ranks_is_under_a_millisecond) {
  Random random(30);
  const std::vector<std::int64_t> lengths = random.longalign(256);
  for (const Strategy strategy : k_all) {
    double best = 1e9;
    for (int repeat = 0; repeat < 20; ++repeat) {
      const double begin = balance_test::thread_seconds();
      const Result<BalancePlan> plan =
          plan_minibatch(lengths, balance_test::options(strategy, 8, 65536));
      best = std::min(best, balance_test::thread_seconds() - begin);
      ASSERT_TRUE(plan);
    }
    std::printf("plan of 256 samples on 8 ranks, %s: %.3f ms\n", to_string(strategy), 1e3 * best);
    EXPECT_LT(best, 1e-3 * balance_test::slowdown_allowed()) << to_string(strategy);
  }
}

TEST(Strategies, more_ranks_than_there_can_be_are_refused) {
  const std::vector<std::int64_t> lengths = {5};
  const auto said =
      plan_minibatch(lengths, balance_test::options(Strategy::none, k_most_ranks + 1, 8));
  EXPECT_THAT(said.error().message, HasSubstr("at most 1048576, not 1048577"));
  BalanceOptions options = balance_test::options(Strategy::none, 1000, 8);
  options.min_microbatches = k_most_min_microbatches;
  EXPECT_THAT(plan_minibatch(lengths, options).error().message,
              HasSubstr("min_microbatches=65536 on 1000 ranks are more than 4194304"));
}

}  // namespace
}  // namespace headrace
