#include "plan/lockstep_memory.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

namespace headrace {
namespace {

WavePlan plan_of(int nodes, int local_ranks, WaveOptions options) {
  return WavePlan::make(Topology::make(nodes, local_ranks).value(), options).value();
}

LockstepMemory memory_of(const WavePlan& plan, MemoryRequest request) {
  return lockstep_memory(plan, request).value();
}

// As the paper prints it.
double rounded(std::size_t bytes, const LockstepMemory& memory, double digits) {
  const double scale = std::pow(10.0, digits);
  return std::round(static_cast<double>(bytes) / static_cast<double>(memory.unsharded_bytes) *
                    scale) /
         scale;
}

// 64 nodes of eight, k = 4, a shard of 32 MiB in bf16.
const WavePlan k_paper_plan = plan_of(64, 8, {.width = 8, .transfers = 4});
constexpr std::size_t k_paper_elements = std::size_t{16} << 20;

TEST(LockstepMemoryTest, the_papers_figures_come_out_at_64_nodes_of_eight) {
  const LockstepMemory in_place = memory_of(k_paper_plan, {.shard_elements = k_paper_elements});
  EXPECT_EQ(rounded(in_place.reduce_scatter_bound, in_place, 3), 0.594);
  EXPECT_EQ(rounded(in_place.backward_bound, in_place, 2), 3.72);
  EXPECT_EQ(rounded(in_place.stock_bytes, in_place, 2), 4.0);
  const LockstepMemory slot_reuse = memory_of(
      k_paper_plan, {.shard_elements = k_paper_elements, .mode = GradientMode::slot_reuse});
  EXPECT_EQ(rounded(slot_reuse.reduce_scatter_bound, slot_reuse, 3), 0.164);
  EXPECT_EQ(rounded(slot_reuse.backward_bound, slot_reuse, 2), 2.29);
}

TEST(LockstepMemoryTest, the_bound_is_the_papers_sum_of_blocks_for_both_dtypes) {
  const std::size_t fp32 = 4 * k_paper_elements;
  for (const int staging_slots : {1, 2, 3}) {
    const auto n_stg = static_cast<std::size_t>(staging_slots);
    MemoryRequest request{.shard_elements = k_paper_elements, .staging_slots = staging_slots};
    EXPECT_EQ(memory_of(k_paper_plan, request).reduce_scatter_bound,
              (4 * n_stg + 8 * 2 + 2 * 63 + 2) * fp32);
    request.mode = GradientMode::slot_reuse;
    EXPECT_EQ(memory_of(k_paper_plan, request).reduce_scatter_bound,
              (4 * n_stg + 8 * 2 + 2 * 8 + 2) * fp32);
    request.gather = DType::float32;
    request.gradient = DType::float32;
    EXPECT_EQ(memory_of(k_paper_plan, request).reduce_scatter_bound,
              (8 * n_stg + 8 * 2 + 2 * 8 + 2) * fp32);
  }
}

TEST(LockstepMemoryTest, every_region_of_a_small_world_is_as_counted_by_hand) {
  // 3 nodes of 2: two waves, {1, 2} and {3}. A shard of 100 bf16 elements, 200 bytes; a sub-slice
  // of 50 is rounded up to 56, 112 bytes; a block has 2 rows of 56 fp32: 448 bytes.
  const WavePlan plan = plan_of(3, 2, {.width = 2, .transfers = 1});
  const LockstepMemory memory = memory_of(plan, {.shard_elements = 100, .staging_slots = 3});
  EXPECT_EQ(memory[Region::landing], (RegionSize{1200, 2}));
  EXPECT_EQ(memory[Region::stage], (RegionSize{400, 1}));
  EXPECT_EQ(memory[Region::resident], (RegionSize{200, 1}));
  EXPECT_EQ(memory[Region::staging], (RegionSize{1UL * 2 * 112, 3}));
  EXPECT_EQ(memory[Region::outbox], (RegionSize{2UL * 448, 2}));
  EXPECT_EQ(memory[Region::inbox], (RegionSize{2UL * 448, 2}));
  EXPECT_EQ(memory[Region::spare], (RegionSize{448, 2}));
  EXPECT_EQ(memory[Region::output], (RegionSize{400, 1}));
  EXPECT_EQ(memory[Region::gradient], (RegionSize{1200, 1}));
  EXPECT_EQ(memory.unsharded_bytes, 1200U);
  EXPECT_EQ(memory.reduce_scatter_bytes, 672U + 1792 + 1792 + 896);
  EXPECT_EQ(memory.backward_bytes, 2400U + 400 + 1200 + memory.reduce_scatter_bytes);
  EXPECT_EQ(memory.stock_bytes, 2400U + 2400);

  const LockstepMemory cast = memory_of(plan, {.shard_elements = 100, .cast = true});
  EXPECT_EQ(cast[Region::stage], (RegionSize{600, 1}));
  EXPECT_EQ(cast[Region::resident].total(), 0U);

  const LockstepMemory reuse =
      memory_of(plan, {.shard_elements = 100, .mode = GradientMode::slot_reuse});
  EXPECT_EQ(reuse[Region::gradient].total(), 0U);
  EXPECT_EQ(reuse[Region::outbox], (RegionSize{2UL * 448, 2})) << "two rounds of one transfer";
}

TEST(LockstepMemoryTest, one_node_or_one_rank_a_node_needs_no_network_or_no_staging) {
  const LockstepMemory one_node = memory_of(plan_of(1, 4, {.width = 4}), {.shard_elements = 64});
  EXPECT_EQ(one_node[Region::stage].total(), 0U);
  EXPECT_EQ(one_node[Region::outbox].total(), 0U);
  const LockstepMemory rails = memory_of(plan_of(4, 1, {.width = 1}), {.shard_elements = 64});
  EXPECT_EQ(rails[Region::staging].total(), 0U);
}

TEST(LockstepMemoryTest, the_bounds_hold_in_every_world_where_nothing_is_rounded) {
  constexpr std::size_t k_elements = 8 * 3 * 5 * 7 * 4 * 8;  // over L * passes, a multiple of 8
  for (int nodes = 1; nodes <= 64; ++nodes) {
    for (int local_ranks = 1; local_ranks <= 8; ++local_ranks) {
      for (int transfers = 1; transfers <= 5; ++transfers) {
        for (int passes = 1; passes <= 4; ++passes) {
          for (const GradientMode mode : {GradientMode::in_place, GradientMode::slot_reuse}) {
            const WavePlan plan =
                plan_of(nodes, local_ranks,
                        {.width = local_ranks, .transfers = transfers, .passes = passes});
            const LockstepMemory memory =
                memory_of(plan, {.shard_elements = k_elements, .cast = true, .mode = mode});
            ASSERT_LE(memory.reduce_scatter_bytes, memory.reduce_scatter_bound)
                << nodes << " nodes of " << local_ranks << ", k " << transfers << ", passes "
                << passes << ", " << to_string(mode);
            ASSERT_LE(memory.backward_bytes, memory.backward_bound);
          }
        }
      }
    }
  }
}

TEST(LockstepMemoryTest, what_cannot_be_is_refused) {
  EXPECT_FALSE(lockstep_memory(k_paper_plan, {.shard_elements = 0}));
  EXPECT_FALSE(lockstep_memory(k_paper_plan, {.shard_elements = 1, .landing_slots = 0}));
  EXPECT_FALSE(lockstep_memory(k_paper_plan, {.shard_elements = 1, .staging_slots = 0}));
  EXPECT_FALSE(lockstep_memory(k_paper_plan, {.shard_elements = static_cast<std::size_t>(
                                                  std::numeric_limits<std::int64_t>::max())}));
  EXPECT_FALSE(lockstep_memory(k_paper_plan, {.shard_elements = std::size_t{1} << 50}));
  const auto wide = lockstep_memory(
      k_paper_plan,
      {.shard_elements = 1, .gradient = DType::float32, .mode = GradientMode::slot_reuse});
  ASSERT_FALSE(wide);
  EXPECT_NE(wide.error().message.find("choose in-place mode"), std::string::npos);
}

}  // namespace
}  // namespace headrace
