// The all-gather's programs are proved over all small worlds, and counted.

#include "plan/all_gather_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "plan/all_gather_signals.h"
#include "support/schedule_worlds.h"

namespace headrace {
namespace {

constexpr int k_most_nodes = 16;
constexpr int k_most_local_ranks = 8;

class AllGatherPlanTest : public testing::TestWithParam<int> {};

TEST_P(AllGatherPlanTest, every_world_is_proved_with_and_without_a_cast) {
  for (int local_ranks = 1; local_ranks <= k_most_local_ranks; ++local_ranks) {
    const Topology topology = Topology::make(GetParam(), local_ranks).value();
    const GroupSpec group = uneven_group(topology.world_size());
    for (const bool cast : {false, true}) {
      const Status status = schedule_check(
          topology, all_gather_of(topology, group, {.cast = cast, .head_bytes = 96}));
      ASSERT_TRUE(status) << GetParam() << " nodes of " << local_ranks << (cast ? ", cast: " : ": ")
                          << status.error().message;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, AllGatherPlanTest, testing::Range(1, k_most_nodes + 1));

TEST(AllGatherPlanTest, head_and_run_options_change_nothing_but_the_cut) {
  for (const int nodes : {2, 5, 9}) {
    const Topology topology = Topology::make(nodes, 2).value();
    const GroupSpec group = uneven_group(topology.world_size());
    for (const std::size_t head_bytes : {std::size_t{0}, std::size_t{48}, std::size_t{1} << 20}) {
      for (const int min_run : {1, 2, 4}) {
        for (const int groups : {1, 3}) {
          const Status status = schedule_check(
              topology,
              all_gather_of(
                  topology, group,
                  {.head_bytes = head_bytes, .min_run = min_run, .last_round_groups = groups}));
          ASSERT_TRUE(status) << status.error().message;
        }
      }
    }
  }
}

TEST(AllGatherPlanTest, groups_of_different_sizes_share_stage_and_signals) {
  const Topology topology = Topology::make(5, 2).value();
  const GroupSpec small = {.name = "small", .parameters = {{.rows = 3, .row_elements = 1}}};
  const std::vector<Collective> collectives = {
      all_gather_of(topology, uneven_group(topology.world_size()), {.head_bytes = 64}),
      all_gather_of(topology, small, {}),
      all_gather_of(topology, {.name = "empty", .parameters = {{.rows = 0, .row_elements = 4}}},
                    {}),
      all_gather_of(topology, uneven_group(3), {.cast = true})};
  const std::vector<std::vector<std::size_t>> calls(static_cast<std::size_t>(topology.world_size()),
                                                    {0, 1, 3, 3, 2, 1, 0, 3});
  const Status status = schedule_check(topology, collectives, calls);
  EXPECT_TRUE(status) << status.error().message;
}

TEST(AllGatherPlanTest, one_node_needs_no_stage_and_one_copy_a_block) {
  const Topology topology = Topology::single_node(4).value();
  const GroupSpec group = {.name = "g",
                           .parameters = {{.rows = 8, .row_elements = 2},
                                          {.rows = 4, .row_elements = 1},
                                          {.rows = 12, .row_elements = 3}}};
  EXPECT_EQ(all_gather_shape(topology, group, {})[Region::stage].total(), 0U);
  const RankProgram program = all_gather_program(topology, group, {}, 1);
  EXPECT_EQ(descriptors(program), 4U * 3U);
  // Beside the copies: signal, wait, credit and wait for each peer, and three marks.
  EXPECT_EQ(program.ops.size(), 4U * 3U + 4U * 3U + 3U);
}

/// The closed form that the header states, for head parts that cut nothing.
std::size_t stated_descriptors(int nodes, int node, int local_ranks, std::size_t parameters,
                               std::size_t cuts) {
  const auto cost = [](int slots) { return slots >= 4 ? 1 : slots; };
  const int rounds = std::bit_width(static_cast<unsigned>(nodes)) - 1;
  int copies = rounds + 5;
  if (node > 0) {
    const int slot = nodes - node;  // the first whose node comes round to 0
    const int round = std::bit_width(static_cast<unsigned>(slot)) - 1;
    const int run = round + 1 == rounds ? nodes / 8 : 1 << round;
    const int before = (slot - (1 << round)) % run;
    copies += cost(before) + cost(run - before) - cost(run);
  }
  const int puts = 1 + 2 * (rounds - 2) + 5;
  return static_cast<std::size_t>(local_ranks) * parameters * static_cast<std::size_t>(copies) +
         static_cast<std::size_t>(puts) + cuts;
}

TEST(AllGatherPlanTest, descriptors_are_the_closed_form) {
  constexpr std::size_t k_parameters = 30;
  for (const int nodes : {32, 64}) {
    const Topology topology = Topology::make(nodes, 8).value();
    GroupSpec group{.name = "g"};
    for (std::size_t parameter = 0; parameter < k_parameters; ++parameter) {
      group.parameters.push_back({.rows = topology.world_size(), .row_elements = 4});
    }
    const auto rounds = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(nodes)) - 1);
    const std::size_t slot = k_parameters * 16;
    for (int node = 0; node < nodes; ++node) {
      const int rank = topology.rank_of(node, 3);
      const AllGatherOptions whole{.head_bytes = 1 << 30};
      EXPECT_EQ(descriptors(all_gather_program(topology, group, whole, rank)),
                stated_descriptors(nodes, node, 8, k_parameters, 0))
          << nodes << " nodes, node " << node;
      // A head of a slot and a half cuts each round of more than one slot but the last.
      const AllGatherOptions cutting{.head_bytes = rounds * (slot + slot / 2)};
      EXPECT_EQ(descriptors(all_gather_program(topology, group, cutting, rank)),
                stated_descriptors(nodes, node, 8, k_parameters, rounds - 2))
          << nodes << " nodes, node " << node;
    }
  }
}

TEST(AllGatherPlanTest, signals_are_told_apart_and_do_not_depend_on_the_group) {
  const Topology topology = Topology::make(5, 3).value();
  const AllGatherSignals signals(topology);
  EXPECT_EQ(signals.rounds(), 3U);
  std::vector<SignalId> all;
  for (int local = 0; local < 3; ++local) {
    all.push_back(signals.slots_ready(local));
    all.push_back(signals.slots_read(local));
  }
  for (std::size_t round = 0; round < signals.rounds(); ++round) {
    all.push_back(signals.arrived(round));
    all.push_back(round == 0 ? signals.stage_free() : signals.confirmed(round));
  }
  std::sort(all.begin(), all.end());
  for (std::size_t at = 0; at < all.size(); ++at) {
    EXPECT_EQ(all[at], at);
  }
  EXPECT_EQ(all.size(), signals.count());
}

}  // namespace
}  // namespace headrace
