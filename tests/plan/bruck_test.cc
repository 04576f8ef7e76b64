// Every world of up to 64 nodes, played through slot by slot.

#include "plan/bruck.h"

#include <gtest/gtest.h>

#include <bit>

namespace headrace {
namespace {

constexpr int k_most_nodes = 64;
constexpr int k_empty = -1;

std::vector<std::vector<BruckRound>> rounds_of_all(int nodes) {
  std::vector<std::vector<BruckRound>> rounds;
  for (int node = 0; node < nodes; ++node) {
    rounds.push_back(bruck_rounds(nodes, node));
  }
  return rounds;
}

TEST(BruckTest, there_are_log2_rounds_that_move_every_other_shard_once) {
  for (int nodes = 1; nodes <= k_most_nodes; ++nodes) {
    for (const std::vector<BruckRound>& rounds : rounds_of_all(nodes)) {
      ASSERT_EQ(rounds.size(), std::bit_width(static_cast<unsigned>(nodes - 1))) << nodes;
      int slots = 0;
      for (const BruckRound& round : rounds) {
        ASSERT_GE(round.slots, 1);
        slots += round.slots;
      }
      ASSERT_EQ(slots, nodes - 1);
    }
  }
}

TEST(BruckTest, source_and_destination_of_a_round_name_each_other) {
  for (int nodes = 1; nodes <= k_most_nodes; ++nodes) {
    const auto rounds = rounds_of_all(nodes);
    for (int node = 0; node < nodes; ++node) {
      for (std::size_t d = 0; d < rounds[0].size(); ++d) {
        const BruckRound& round = rounds[static_cast<std::size_t>(node)][d];
        ASSERT_EQ(round.destination, ((node - (1 << d)) % nodes + nodes) % nodes);
        ASSERT_EQ(round.source, (node + (1 << d)) % nodes);
        ASSERT_EQ(rounds[static_cast<std::size_t>(round.destination)][d].source, node);
        ASSERT_EQ(rounds[static_cast<std::size_t>(round.source)][d].destination, node);
      }
    }
  }
}

TEST(BruckTest, slots_fill_in_order_and_slot_k_ends_with_the_shard_of_node_n_plus_k) {
  for (int nodes = 1; nodes <= k_most_nodes; ++nodes) {
    const auto rounds = rounds_of_all(nodes);
    std::vector<std::vector<int>> slots(static_cast<std::size_t>(nodes));
    for (int node = 0; node < nodes; ++node) {
      auto& own = slots[static_cast<std::size_t>(node)];
      own.assign(static_cast<std::size_t>(nodes), k_empty);
      own[0] = node;
    }
    for (std::size_t d = 0; d < rounds[0].size(); ++d) {
      const auto before = slots;
      for (std::size_t node = 0; node < slots.size(); ++node) {
        const BruckRound& round = rounds[node][d];
        for (int i = 0; i < round.slots; ++i) {
          const int sent =
              before[static_cast<std::size_t>(round.source)][static_cast<std::size_t>(i)];
          ASSERT_NE(sent, k_empty) << nodes << " nodes, round " << d;
          int& received = slots[node][static_cast<std::size_t>(round.first_received + i)];
          ASSERT_EQ(received, k_empty) << "a slot is filled twice";
          received = sent;
        }
      }
    }
    for (int node = 0; node < nodes; ++node) {
      for (int k = 0; k < nodes; ++k) {
        ASSERT_EQ(slots[static_cast<std::size_t>(node)][static_cast<std::size_t>(k)],
                  (node + k) % nodes)
            << nodes << " nodes";
      }
    }
  }
}

}  // namespace
}  // namespace headrace
