// The bytes of every arena region of lockstep, against closed forms written out here.

#include "plan/lockstep_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/on_demand_plan.h"

namespace headrace {
namespace {

constexpr std::size_t k_shard_elements = 64 * 64;
constexpr std::size_t k_shard = k_shard_elements * sizeof(float);
constexpr std::size_t k_chunk = 4096;
constexpr std::size_t k_signal = 16;

std::size_t pages(std::size_t bytes) { return (bytes + k_page - 1) / k_page * k_page; }

/// Two groups of one fp32 parameter, of which nothing is rounded.
ModelSpec model_of(int ranks) {
  const ParameterSpec parameter{
      .name = "w", .rows = 64 * ranks, .row_elements = 64, .dtype = DType::float32};
  return {.groups = {{.name = "adopted", .parameters = {parameter}},
                     {.name = "cast", .parameters = {parameter}}}};
}

class LockstepPlanTest : public ::testing::TestWithParam<std::tuple<int, int, bool>> {};

TEST_P(LockstepPlanTest, every_region_is_as_large_as_its_closed_form_and_nothing_else_is_taken) {
  const auto [nodes, local_ranks, all_adopted] = GetParam();
  const int ranks = nodes * local_ranks;
  const auto m = static_cast<std::size_t>(nodes);
  const auto l = static_cast<std::size_t>(local_ranks);
  const auto n = static_cast<std::size_t>(ranks);
  LockstepOptions options;
  options.adopted = {true, all_adopted};
  options.reduce_scatter.chunk_bytes = k_chunk;
  const auto plan = LockstepPlan::make(Topology::make(nodes, local_ranks).value(), model_of(ranks),
                                       options, 3 * k_page)
                        .value();

  const std::size_t staging_slots = static_cast<std::size_t>(options.reduce_scatter.staging_slots);
  const std::size_t passes = static_cast<std::size_t>(options.reduce_scatter.passes);
  const std::size_t waves = (m + l - 1) / l;    // the own partials too
  const std::size_t rows = nodes == 1 ? 1 : l;  // of a chunk: the destinations of a node
  const std::size_t part = nodes == 1 ? k_shard_elements : k_shard_elements / l / passes;
  const std::size_t chunk = std::min(k_chunk / (rows * sizeof(float)), part);
  const std::size_t stage = (all_adopted ? m - 1 : m) * k_shard;
  const std::size_t staging = staging_slots * (l - 1) * rows * chunk * sizeof(float);
  const std::size_t outbox = 2 * (m - 1) * k_shard / passes;
  const std::size_t inbox = nodes == 1 ? 0 : std::min<std::size_t>(waves, 2) * l * k_shard / passes;
  const std::size_t spare = nodes == 1 ? 0 : 2 * k_shard;

  const ArenaRegions regions = plan.regions(0);
  const auto total = [&regions](Region region) {
    return regions[static_cast<std::size_t>(region)].size.total();
  };
  EXPECT_EQ(total(Region::stage), stage);
  EXPECT_EQ(total(Region::staging), staging);
  EXPECT_EQ(total(Region::outbox), outbox);
  EXPECT_EQ(total(Region::inbox), inbox);
  EXPECT_EQ(total(Region::spare), spare);
  EXPECT_EQ(plan.end(),
            3 * k_page + pages(n * k_signal) + pages(n * 2 * LockstepPlan::k_call_digest_bytes) +
                pages(plan.signals() * k_signal) + pages(k_shard) * (all_adopted ? 2 : 1) +
                pages(LockstepPlan::k_record_bytes) + pages(stage) + pages(staging) +
                pages(outbox) + pages(inbox) + pages(spare));
}

INSTANTIATE_TEST_SUITE_P(Worlds, LockstepPlanTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 5, 8),
                                            ::testing::Values(1, 2, 4, 8), ::testing::Bool()));

}  // namespace
}  // namespace headrace
