// Every world of up to 64 nodes of up to 8 ranks.

#include "plan/latin_square.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace headrace {
namespace {

constexpr int k_most_nodes = 64;
constexpr int k_most_local_ranks = 8;

template <class Body>
void for_all_worlds(Body body) {
  for (int nodes = 1; nodes <= k_most_nodes; ++nodes) {
    for (int local_ranks = 1; local_ranks <= k_most_local_ranks; ++local_ranks) {
      body(nodes, local_ranks, Topology::make(nodes, local_ranks).value());
      if (testing::Test::HasFatalFailure()) {
        return;
      }
    }
  }
}

TEST(LatinSquareTest, a_destination_counts_every_node_once_and_itself_last) {
  for_all_worlds([](int nodes, int, const Topology& topology) {
    const LatinSquare square(topology);
    for (int destination = 0; destination < nodes; ++destination) {
      std::set<int> contributors;
      for (int source = 0; source < nodes; ++source) {
        const int c = square.contributor(destination, source);
        contributors.insert(c);
        ASSERT_EQ(c == nodes, source == destination);
        ASSERT_EQ(square.source(destination, c), source);
        ASSERT_EQ(square.destination(source, c), destination);
      }
      ASSERT_EQ(*contributors.begin(), 1);
      ASSERT_EQ(*contributors.rbegin(), nodes);
      ASSERT_EQ(contributors.size(), static_cast<std::size_t>(nodes));
    }
  });
}

TEST(LatinSquareTest, sub_slices_and_local_ranks_follow_the_papers_formulas) {
  for_all_worlds([](int nodes, int local_ranks, const Topology& topology) {
    const LatinSquare square(topology);
    for (int c = 1; c <= nodes; ++c) {
      const int c_bar = c % nodes;
      for (int i = 0; i < local_ranks; ++i) {
        ASSERT_EQ(square.sub_slice(i, c), (i + c_bar) % local_ranks);
        ASSERT_EQ(square.local_of(i, c), ((i - c_bar) % local_ranks + local_ranks) % local_ranks);
        ASSERT_EQ(square.local_of(square.sub_slice(i, c), c), i);
      }
    }
  });
}

// Two contributors of one wave in one place, looked for sub-slice by sub-slice.
bool collides(const Topology& topology, int width, int sub_slice) {
  const LatinSquare square(topology);
  std::set<std::pair<int, int>> taken;
  for (int c = 1; c <= topology.nodes(); ++c) {
    if (!taken.emplace((c - 1) / width, square.local_of(sub_slice, c)).second) {
      return true;
    }
  }
  return false;
}

TEST(LatinSquareTest, a_width_collides_in_all_sub_slices_or_in_none_and_never_where_it_divides_l) {
  int colliding = 0;
  for_all_worlds([&colliding](int nodes, int local_ranks, const Topology& topology) {
    for (int width = 1; width <= local_ranks; ++width) {
      const auto found = find_collision(topology, width);
      for (int s = 0; s < local_ranks; ++s) {
        ASSERT_EQ(collides(topology, width, s), found.has_value())
            << nodes << " nodes of " << local_ranks << ", width " << width;
      }
      if (local_ranks % width == 0) {
        ASSERT_FALSE(found);
      }
      if (found) {
        ++colliding;
        const LatinSquare square(topology);
        ASSERT_LT(found->first, found->second);
        ASSERT_EQ((found->first - 1) / width, found->wave);
        ASSERT_EQ((found->second - 1) / width, found->wave);
        ASSERT_EQ(square.residue(found->first), square.residue(found->second));
      }
    }
  });
  EXPECT_GT(colliding, 0);
}

TEST(LatinSquareTest, nine_nodes_of_eight_in_waves_of_three_collide_in_the_last_wave) {
  EXPECT_EQ(find_collision(Topology::make(9, 8).value(), 3),
            (WaveCollision{.wave = 2, .first = 8, .second = 9}));
}

}  // namespace
}  // namespace headrace
