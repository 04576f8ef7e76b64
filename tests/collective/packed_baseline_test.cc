// The baseline must be right to be a fair comparison.

#include "collective/packed_baseline.h"

#include <gtest/gtest.h>

#include "kernel/cast.h"
#include "support/session_group.h"

namespace headrace::testing {
namespace {

GroupSpec uneven_group() {
  return {.name = "g",
          .parameters = {{.name = "a", .rows = 13, .row_elements = 7},
                         {.name = "b", .rows = 1, .row_elements = 1, .dtype = DType::bfloat16},
                         {.name = "c", .rows = 130, .row_elements = 33, .dtype = DType::bfloat16}}};
}

class PackedBaselineTest : public ::testing::TestWithParam<int> {};

TEST_P(PackedBaselineTest, gathers_exactly_and_sums_what_every_rank_gives) {
  const GroupSpec group = uneven_group();
  const ModelSpec model{.groups = {group}};
  run_ranks({.backend = Backend::fake,
             .world_size = GetParam(),
             .memory_bytes = PackedBaseline::memory_bytes(group, GetParam())},
            [&](const Rank& self) {
              auto transport = self.transport();
              ASSERT_TRUE(transport) << transport.error().describe();
              PackedBaseline baseline(group, self.rank, self.world_size, transport->get());
              const OnDemandPlan plan(Topology::single_node(self.world_size).value(), model, 4096);
              const auto values = integer_values(model, 9);
              const Shards shards(plan, self.rank, values);
              for (int round = 0; round < 3; ++round) {
                Landings landings(plan, 0);
                ASSERT_TRUE(baseline.all_gather(shards.sources()[0], landings.addresses()));
                std::vector<GradientSource> gradients;
                for (std::size_t p = 0; p < group.parameters.size(); ++p) {
                  ASSERT_EQ(landings.values(p), values[0][p]);
                  gradients.push_back({.parameter = p, .address = values[0][p].data()});
                }
                const AddressMap& map = baseline.map();
                std::vector<float> output(map.accumulator_bytes() / sizeof(float));
                ASSERT_TRUE(baseline.reduce_scatter(gradients, output));
                for (std::size_t p = 0; p < group.parameters.size(); ++p) {
                  const float* sum = output.data() + map.accumulator_offset(p) / sizeof(float);
                  for (std::size_t i = 0; i < map.shard_elements(p, self.rank); ++i) {
                    ASSERT_EQ(sum[i], static_cast<float>(self.world_size) *
                                          values[0][p][map.first_element(p, self.rank) + i]);
                  }
                }
              }
              (*transport)->liveness().leave();
            });
}

INSTANTIATE_TEST_SUITE_P(Worlds, PackedBaselineTest, ::testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace headrace::testing
