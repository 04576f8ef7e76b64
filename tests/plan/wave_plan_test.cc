// Every world of up to 64 nodes of up to 8 ranks, every wave width, and what the checks find in
// waves that are wrong.

#include "plan/wave_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "plan/latin_square.h"
#include "plan/wave_check.h"

namespace headrace {
namespace {

constexpr int k_most_nodes = 64;
constexpr int k_most_local_ranks = 8;
constexpr int k_most_transfers = 9;
constexpr int k_most_passes = 3;

WavePlan plan_of(int nodes, int local_ranks, WaveOptions options) {
  return WavePlan::make(Topology::make(nodes, local_ranks).value(), options).value();
}

template <class Body>
void for_all_plans(Body body) {
  for (int nodes = 1; nodes <= k_most_nodes; ++nodes) {
    for (int local_ranks = 1; local_ranks <= k_most_local_ranks; ++local_ranks) {
      const Topology topology = Topology::make(nodes, local_ranks).value();
      for (int width = 1; width <= local_ranks; ++width) {
        for (int transfers = 1; transfers <= k_most_transfers; ++transfers) {
          for (int passes = 1; passes <= k_most_passes; ++passes) {
            const WaveOptions options{.width = width, .transfers = transfers, .passes = passes};
            if (const auto plan = WavePlan::make(topology, options)) {
              body(plan.value());
              if (testing::Test::HasFatalFailure()) {
                return;
              }
            }
          }
        }
      }
    }
  }
}

TEST(WavePlanTest, widths_that_collide_are_refused_and_all_others_accepted) {
  for (int nodes = 1; nodes <= k_most_nodes; ++nodes) {
    for (int local_ranks = 1; local_ranks <= k_most_local_ranks; ++local_ranks) {
      const Topology topology = Topology::make(nodes, local_ranks).value();
      for (int width = 1; width <= local_ranks; ++width) {
        ASSERT_EQ(static_cast<bool>(WavePlan::make(topology, {.width = width})),
                  !find_collision(topology, width).has_value());
      }
    }
  }
}

TEST(WavePlanTest, refusals_say_what_to_choose) {
  const Topology topology = Topology::make(9, 8).value();
  const auto message = [&](WaveOptions options) {
    return WavePlan::make(topology, options).error().message;
  };
  EXPECT_NE(message({.width = 3}).find("contributors 8 and 9 of wave 2"), std::string::npos);
  EXPECT_NE(message({.width = 3}).find("choose a width that divides 8"), std::string::npos);
  EXPECT_NE(message({.width = 9}).find("choose 1 to 8"), std::string::npos);
  EXPECT_FALSE(WavePlan::make(topology, {.width = 0}));
  EXPECT_FALSE(WavePlan::make(topology, {.width = 8, .transfers = 0}));
  EXPECT_FALSE(WavePlan::make(topology, {.width = 8, .passes = 0}));
}

TEST(WavePlanTest, every_contributor_is_in_one_wave_and_every_remote_one_in_one_round_of_it) {
  for_all_plans([](const WavePlan& plan) {
    const int nodes = plan.topology().nodes();
    std::map<int, int> wave_of;
    std::map<int, int> round_of;
    for (std::size_t w = 0; w < plan.waves().size(); ++w) {
      const Wave& wave = plan.waves()[w];
      ASSERT_LE(wave.contributors, plan.options().width);
      for (int i = 0; i < wave.contributors; ++i) {
        ASSERT_TRUE(wave_of.emplace(wave.first + i, w).second);
      }
      for (int r = wave.first_round; r < wave.first_round + wave.rounds; ++r) {
        const Round& round = plan.rounds()[static_cast<std::size_t>(r)];
        ASSERT_GE(round.transfers, 1);
        ASSERT_LE(round.transfers, plan.options().transfers);
        for (int i = 0; i < round.transfers; ++i) {
          ASSERT_EQ(wave_of.at(round.first + i), static_cast<int>(w));
          ASSERT_TRUE(round_of.emplace(round.first + i, r).second);
        }
      }
    }
    ASSERT_EQ(wave_of.size(), static_cast<std::size_t>(nodes));
    ASSERT_EQ(round_of.size(), static_cast<std::size_t>(nodes - 1));
    ASSERT_EQ(round_of.count(nodes), 0U) << "the own node needs no transfer";
  });
}

TEST(WavePlanTest, one_inbox_generation_for_a_single_wave_else_two) {
  EXPECT_EQ(plan_of(8, 8, {.width = 8}).generations(), 1);
  EXPECT_EQ(plan_of(9, 8, {.width = 8}).generations(), 2);
  EXPECT_EQ(plan_of(8, 8, {.width = 8, .passes = 2}).generations(), 2);
  EXPECT_EQ(plan_of(1, 8, {.width = 8}).generations(), 1);
}

TEST(WavePlanTest, the_outbox_holds_all_remote_partials_or_those_of_two_rounds) {
  for_all_plans([](const WavePlan& plan) {
    const int in_place = plan.outbox_blocks(GradientMode::in_place);
    const int partial = plan.outbox_blocks(GradientMode::slot_reuse);
    ASSERT_EQ(in_place, (plan.topology().nodes() - 1) * plan.options().passes);
    ASSERT_LE(partial, 2 * plan.options().transfers);
    ASSERT_LE(partial, in_place);
    const WaveParts parts = WaveParts::of(plan);
    ASSERT_TRUE(check_outbox(parts, in_place));
    ASSERT_TRUE(check_outbox(parts, partial));
    if (partial > 0) {
      ASSERT_FALSE(check_outbox(parts, partial - 1)) << "a block more than needed";
    }
  });
  // Rounds of 4, 3 (wave 0), 4, 3, ... : 7 remote contributors in waves of 7.
  EXPECT_EQ(plan_of(8, 7, {.width = 7, .transfers = 4}).outbox_blocks(GradientMode::slot_reuse), 7);
  EXPECT_EQ(plan_of(64, 8, {.width = 8, .transfers = 4}).outbox_blocks(GradientMode::slot_reuse),
            8);
}

TEST(WavePlanTest, accepted_plans_are_free_of_stale_blocks_and_misplaced_rounds) {
  for_all_plans([](const WavePlan& plan) {
    const WaveParts parts = WaveParts::of(plan);
    ASSERT_TRUE(check_inbox(parts));
    ASSERT_TRUE(check_rounds(parts));
  });
}

TEST(WaveCheckTest, a_collision_of_two_contributors_is_found) {
  const std::vector<Wave> waves{{.first = 1, .contributors = 3},
                                {.first = 4, .contributors = 3},
                                {.first = 7, .contributors = 3}};
  const Status status = check_inbox({.topology = Topology::make(9, 8).value(),
                                     .options = {.width = 3},
                                     .waves = waves,
                                     .generations = 2,
                                     .stale_residues = [](int) { return std::vector<int>(); }});
  // The first wave is stale already where nothing is zeroed, so zero what it does not fill.
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("stale"), std::string::npos);
  const auto zero_the_rest = [](int wave) {
    std::vector<int> rest;
    for (int residue = 0; residue < 8; ++residue) {
      const int first = 3 * wave + 1;
      if (residue < first || residue >= first + 3) {
        rest.push_back(residue);
      }
    }
    return rest;
  };
  const Status collision = check_inbox({.topology = Topology::make(9, 8).value(),
                                        .options = {.width = 3},
                                        .waves = waves,
                                        .generations = 2,
                                        .stale_residues = zero_the_rest});
  ASSERT_FALSE(collision);
  EXPECT_NE(collision.error().message.find("contributor 9 overwrites another of wave 2"),
            std::string::npos)
      << collision.error().message;
}

TEST(WaveCheckTest, a_block_that_is_not_zeroed_or_zeroed_too_much_is_found) {
  const WavePlan plan = plan_of(12, 8, {.width = 8});
  WaveParts parts = WaveParts::of(plan);
  ASSERT_TRUE(check_inbox(parts));
  const auto honest = parts.stale_residues;
  for (int wave = 0; wave < plan.total_waves(); ++wave) {
    for (const int spared : plan.stale_residues(wave)) {
      parts.stale_residues = [&](int w) {
        std::vector<int> stale = honest(w);
        if (w == wave) {
          std::erase(stale, spared);
        }
        return stale;
      };
      const Status status = check_inbox(parts);
      ASSERT_FALSE(status) << "residue " << spared << " of wave " << wave;
      EXPECT_NE(status.error().message.find("stale"), std::string::npos);
    }
  }
  parts.stale_residues = [&](int w) {
    std::vector<int> stale = honest(w);
    stale.push_back(1);
    return stale;
  };
  const Status status = check_inbox(parts);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("7 contributors instead of 8"), std::string::npos)
      << status.error().message;
}

TEST(WaveCheckTest, two_generations_need_not_be_zeroed_as_one) {
  // Waves of 8, 8, 4: what the third leaves empty was filled by the first, not by the second.
  const WavePlan plan = plan_of(20, 8, {.width = 8});
  EXPECT_TRUE(plan.stale_residues(1).empty());
  EXPECT_EQ(plan.stale_residues(2), (std::vector<int>{4, 5, 6, 7}));
}

TEST(WaveCheckTest, wrong_rounds_are_found) {
  const WavePlan plan = plan_of(12, 8, {.width = 8, .transfers = 3});
  const auto refuses = [&plan](auto break_it) {
    std::vector<Wave> waves = plan.waves();
    std::vector<Round> rounds = plan.rounds();
    break_it(waves, rounds);
    WaveParts parts = WaveParts::of(plan);
    parts.waves = waves;
    parts.rounds = rounds;
    return !check_rounds(parts);
  };
  using Waves = std::vector<Wave>;
  using Rounds = std::vector<Round>;
  EXPECT_FALSE(refuses([](Waves&, Rounds&) {})) << "the plan as it is";
  EXPECT_TRUE(refuses([](Waves&, Rounds& rounds) { ++rounds[0].transfers; })) << "too many";
  EXPECT_TRUE(refuses([](Waves&, Rounds& rounds) { rounds[2].transfers = 1; })) << "one left out";
  EXPECT_TRUE(refuses([](Waves&, Rounds& rounds) { rounds[2].transfers = 3; })) << "over the wave";
  EXPECT_TRUE(refuses([](Waves&, Rounds& rounds) { std::swap(rounds[0], rounds[1]); }));
  EXPECT_TRUE(refuses([](Waves&, Rounds& rounds) { rounds.pop_back(); }));
  EXPECT_TRUE(refuses([](Waves& waves, Rounds&) { waves.pop_back(); }));
  EXPECT_TRUE(refuses([](Waves& waves, Rounds&) { ++waves[0].contributors; }));
}

// The program's test runs the whole sweep with four passes.
TEST(WaveSweepTest, the_counts_of_the_paper_come_out) {
  const auto result = sweep_waves({.passes = 1});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result.value().accepted, 458'304);
  EXPECT_EQ(result.value().rejected, 65'472);
  EXPECT_EQ(result.value().plans(), 523'776);
  EXPECT_EQ(result.value().checked, 458'304);
  EXPECT_EQ(result.value().failed, 0);
  EXPECT_NE(result.value().first_rejection.find("9 nodes of 8"), std::string::npos);
}

TEST(WaveSweepTest, every_accepted_plan_is_checked_with_each_number_of_passes) {
  const auto result = sweep_waves({.nodes = {2, 64}, .passes = 4});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result.value().checked, 4 * result.value().accepted);
  EXPECT_EQ(result.value().failed, 0);
}

TEST(WaveSweepTest, a_sweep_without_plans_is_refused) {
  EXPECT_FALSE(sweep_waves({.nodes = {3, 2}}));
  EXPECT_FALSE(sweep_waves({.nodes = {0, 2}}));
  EXPECT_FALSE(sweep_waves({.local_ranks = 0}));
  EXPECT_FALSE(sweep_waves({.passes = 0}));
}

}  // namespace
}  // namespace headrace
