// Reduce-scatter programs: proved by the checker over worlds and options, sized and counted.

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "plan/reduce_scatter_worlds.h"

namespace headrace {
namespace {

std::string describe(const Topology& topology, const ReduceScatterOptions& options) {
  return fmt::format("{} x {}, W {}, k {}, {} passes, {}, {} slots, chunks of {} bytes",
                     topology.nodes(), topology.local_ranks(), options.wave_width,
                     options.transfers, options.passes, to_string(options.mode),
                     options.staging_slots, options.chunk_bytes);
}

void expect_proved(WorldSize size) {
  const Topology topology = Topology::make(size.nodes, size.local_ranks).value();
  for (const GroupSpec& group : {uneven_group(), tiny_group(), GroupSpec{.name = "empty"}}) {
    for (const ReduceScatterOptions& options : option_samples(topology, group)) {
      const auto collective = reduce_scatter_collective(topology, group, options);
      ASSERT_TRUE(collective) << describe(topology, options) << ": " << collective.error().message;
      const Status proved = schedule_check(topology, *collective);
      ASSERT_TRUE(proved) << group.name << ", " << describe(topology, options) << ": "
                          << proved.error().message;
    }
  }
}

class ReduceScatterPlanTest : public ::testing::TestWithParam<WorldSize> {};

TEST_P(ReduceScatterPlanTest, programs_are_proved_for_all_options) { expect_proved(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Worlds, ReduceScatterPlanTest,
                         ::testing::Values(WorldSize{1, 1}, WorldSize{1, 2}, WorldSize{1, 3},
                                           WorldSize{1, 8}, WorldSize{2, 1}, WorldSize{2, 2},
                                           WorldSize{3, 2}, WorldSize{4, 2}, WorldSize{5, 1},
                                           WorldSize{2, 4}, WorldSize{9, 2}, WorldSize{7, 3},
                                           WorldSize{5, 4}),
                         [](const auto& world) {
                           return fmt::format("{}x{}", world.param.nodes, world.param.local_ranks);
                         });

}  // namespace
}  // namespace headrace
