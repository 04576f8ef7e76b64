// Post-conditions of the layouts, over all small worlds and shapes.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/checked_math.h"
#include "plan/address_map.h"
#include "plan/on_demand_plan.h"
#include "plan/shard_layout.h"

namespace headrace {
namespace {

constexpr int k_largest_world = 16;

TEST(ShardLayoutTest, ranges_of_all_ranks_are_disjoint_ascending_and_cover_every_row) {
  for (int world = 1; world <= k_largest_world; ++world) {
    for (std::int64_t rows = 0; rows <= 40; ++rows) {
      const ShardLayout layout({.name = "w", .rows = rows, .row_elements = 3}, world);
      std::int64_t next = 0;
      for (int rank = 0; rank < world; ++rank) {
        const RowRange range = layout.rows(rank);
        ASSERT_EQ(range.begin, next) << rows << " rows, rank " << rank << " of " << world;
        ASSERT_GE(range.count(), 0);
        ASSERT_LE(range.count(), layout.padded_rows());
        if (range.end < rows) {
          ASSERT_EQ(range.count(), layout.padded_rows()) << "only the last rows may be fewer";
        }
        ASSERT_EQ(layout.elements(rank), range.count() * 3);
        next = range.end;
      }
      ASSERT_EQ(next, rows);
    }
  }
}

TEST(ShardLayoutTest, six_rows_over_four_ranks_are_dealt_as_torch_chunk_deals_them) {
  const ShardLayout layout({.name = "w", .rows = 6, .row_elements = 1}, 4);
  EXPECT_EQ(layout.rows(0), (RowRange{0, 2}));
  EXPECT_EQ(layout.rows(2), (RowRange{4, 6}));
  EXPECT_EQ(layout.rows(3), (RowRange{6, 6}));
}

GroupSpec group_of(std::int64_t rows, std::int64_t row_elements) {
  return {
      .name = "g",
      .parameters = {
          {.name = "a", .rows = rows, .row_elements = row_elements},
          {.name = "b", .rows = 1, .row_elements = 1, .dtype = DType::bfloat16},
          {.name = "c", .rows = rows + 1, .row_elements = row_elements, .dtype = DType::bfloat16},
          {.name = "d", .rows = 0, .row_elements = 4}}};
}

TEST(AddressMapTest, blocks_of_a_landing_are_contiguous_and_never_rounded) {
  for (int world = 1; world <= k_largest_world; ++world) {
    for (std::int64_t rows = 1; rows <= 20; ++rows) {
      const GroupSpec group = group_of(rows, 3);
      const AddressMap map(group, world);
      for (std::size_t p = 0; p < map.parameters(); ++p) {
        const ParameterSpec& parameter = group.parameters[p];
        const auto block =
            static_cast<std::size_t>(ceil_div(parameter.rows, world) * parameter.row_elements) *
            item_size(parameter.dtype);
        ASSERT_EQ(map.block_bytes(p), block);
        for (int rank = 0; rank < world; ++rank) {
          ASSERT_EQ(map.landing_offset(p, rank), static_cast<std::size_t>(rank) * block);
          // A rank's real rows lie at the start of its block, where the unsharded parameter has
          // them.
          ASSERT_LE(map.shard_bytes(p, rank), block);
          if (map.shard_elements(p, rank) > 0) {
            ASSERT_EQ(map.first_element(p, rank) * item_size(parameter.dtype),
                      map.landing_offset(p, rank));
          }
        }
        ASSERT_EQ(map.landing_bytes(p), static_cast<std::size_t>(world) * block);
      }
    }
  }
}

TEST(AddressMapTest, published_blocks_and_accumulators_are_aligned_and_do_not_overlap) {
  for (int world = 1; world <= k_largest_world; ++world) {
    for (std::int64_t rows = 1; rows <= 20; ++rows) {
      const AddressMap map(group_of(rows, 5), world);
      std::size_t published = 0;
      std::size_t accumulators = 0;
      std::size_t group_bytes = 0;
      for (std::size_t p = 0; p < map.parameters(); ++p) {
        ASSERT_EQ(map.published_offset(p) % 16, 0U);
        ASSERT_EQ(map.accumulator_offset(p) % 16, 0U);
        ASSERT_GE(map.published_offset(p), published);
        ASSERT_GE(map.accumulator_offset(p), accumulators);
        published = map.published_offset(p) + map.block_bytes(p);
        accumulators = map.accumulator_offset(p) + map.shard_elements(p, 0) * sizeof(float);
        group_bytes += map.block_bytes(p);
      }
      ASSERT_LE(published, map.published_bytes());
      ASSERT_LE(accumulators, map.accumulator_bytes());
      ASSERT_EQ(map.shard_group_bytes(), group_bytes);
    }
  }
}

TEST(OnDemandPlanTest, every_place_of_the_arena_belongs_to_one_thing) {
  for (int world = 1; world <= 8; ++world) {
    const ModelSpec model{
        .groups = {group_of(7, 3), {.name = "empty", .parameters = {}}, group_of(100, 64)}};
    for (const Accumulation accumulation : {Accumulation::arrival, Accumulation::reproducible}) {
      const OnDemandPlan plan(Topology::single_node(world).value(), model, 256, accumulation);
      struct Place {
        std::size_t begin;
        std::size_t end;
      };
      std::vector<Place> places{{plan.liveness_offset(), k_page}};
      const auto add = [&places](std::size_t begin, std::size_t bytes) {
        places.push_back({begin, begin + bytes});
      };
      for (int rank = 0; rank < world; ++rank) {
        for (std::size_t group = 0; group < plan.groups(); ++group) {
          add(plan.published_signal(rank, group), k_signal_bytes);
        }
        add(plan.record_signal(rank), k_signal_bytes);
        add(plan.added_signal(rank), k_signal_bytes);
        for (std::uint64_t epoch : {6, 7}) {
          add(plan.digest_offset(rank, epoch), OnDemandPlan::k_digest_bytes);
          add(plan.record_offset(rank, epoch),
              OnDemandPlan::k_record_bytes + plan.touched_words() * sizeof(std::uint64_t));
        }
      }
      for (std::size_t group = 0; group < plan.groups(); ++group) {
        if (plan.slots_are_shared()) {
          const std::size_t chunks = (plan.map(group).accumulator_bytes() + 255) / 256;
          add(plan.lock_offset(group), chunks * sizeof(std::uint32_t));
        }
        add(plan.published_shard_offset(group), plan.map(group).published_bytes());
        for (std::size_t slot = 0; slot < plan.slots(); ++slot) {
          add(plan.accumulator_offset(group, slot), plan.map(group).accumulator_bytes());
        }
      }
      std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
        return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
      });
      for (std::size_t i = 1; i < places.size(); ++i) {
        ASSERT_LE(places[i - 1].end, places[i].begin) << "world " << world;
      }
      ASSERT_LE(places.back().end, plan.bytes());
      ASSERT_EQ(plan.bytes() % k_page, 0U);
      ASSERT_EQ(plan.digest_offset(0, 2), plan.digest_offset(0, 4))
          << "two slots, by the epoch's parity";
    }
  }
}

TEST(OnDemandPlanTest, reproducible_adds_one_slot_of_accumulators_a_further_source) {
  const ModelSpec model{
      .groups = {group_of(7, 3), {.name = "empty", .parameters = {}}, group_of(100, 64)}};
  for (int world = 1; world <= k_largest_world; ++world) {
    const auto plan = [&](Accumulation accumulation) {
      return OnDemandPlan(Topology::single_node(world).value(), model, 4096, accumulation);
    };
    const OnDemandPlan arrival = plan(Accumulation::arrival);
    const OnDemandPlan reproducible = plan(Accumulation::reproducible);
    ASSERT_EQ(arrival.slots(), 1U);
    ASSERT_EQ(reproducible.slots(), static_cast<std::size_t>(world));
    std::size_t slot_bytes = 0;
    std::size_t chunks = 0;
    for (std::size_t group = 0; group < model.groups.size(); ++group) {
      slot_bytes += round_up(arrival.map(group).accumulator_bytes(), k_page);
      chunks += (arrival.map(group).accumulator_bytes() + 4095) / 4096;
    }
    const std::size_t locks = round_up(chunks * sizeof(std::uint32_t), k_page);
    ASSERT_EQ(reproducible.bytes() + locks,
              arrival.bytes() + (static_cast<std::size_t>(world) - 1) * slot_bytes)
        << "world " << world;
    for (int source = 0; source < world; ++source) {
      ASSERT_EQ(arrival.slot(source), 0U);
      ASSERT_EQ(reproducible.slot(source), static_cast<std::size_t>(source));
    }
  }
}

TEST(TopologyTest, a_rotation_visits_every_rank_once_and_itself_first) {
  for (int world = 1; world <= k_largest_world; ++world) {
    const Topology topology = Topology::single_node(world).value();
    for (int self = 0; self < world; ++self) {
      const std::vector<int> order = topology.rotation(self);
      ASSERT_EQ(order.front(), self);
      ASSERT_EQ(std::set<int>(order.begin(), order.end()).size(), static_cast<std::size_t>(world));
    }
  }
  EXPECT_FALSE(Topology::make(0, 4));
  EXPECT_FALSE(Topology::make(2, 0));
  const Topology grid = Topology::make(3, 4).value();
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    EXPECT_EQ(grid.rank_of(grid.node_of(rank), grid.local_of(rank)), rank);
  }
}

TEST(ModelSpecTest, impossible_models_are_refused_by_name) {
  EXPECT_FALSE(ModelSpec{}.validate(2));
  const auto validate = [](std::int64_t rows, std::int64_t row_elements) {
    return ModelSpec{
        .groups = {{.name = "g",
                    .parameters = {{.name = "odd", .rows = rows, .row_elements = row_elements}}}}}
        .validate(2);
  };
  EXPECT_TRUE(validate(0, 0));
  for (const auto& [rows, row_elements] : {std::pair<std::int64_t, std::int64_t>{-1, 4},
                                           {4, -1},
                                           {std::int64_t{1} << 40, std::int64_t{1} << 40}}) {
    const Status status = validate(rows, row_elements);
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("odd"), std::string::npos);
  }
}

TEST(ModelSpecTest, the_digest_tells_names_shapes_dtypes_and_order_apart) {
  const ParameterSpec a{.name = "a", .rows = 2, .row_elements = 3};
  const ParameterSpec b{.name = "b", .rows = 3, .row_elements = 2};
  ParameterSpec half = a;
  half.dtype = DType::bfloat16;
  const auto digest = [](std::vector<ParameterSpec> parameters) {
    return ModelSpec{.groups = {{.name = "g", .parameters = std::move(parameters)}}}.digest();
  };
  const std::set<std::uint64_t> digests{digest({a, b}), digest({b, a}), digest({a}), digest({half}),
                                        digest({})};
  EXPECT_EQ(digests.size(), 5U);
  EXPECT_EQ(digest({a, b}), digest({a, b}));
}

}  // namespace
}  // namespace headrace
