#include "plan/sizing.h"

#include <gtest/gtest.h>

#include "plan/wave_plan.h"

namespace headrace {
namespace {

constexpr std::size_t k_mib = 1 << 20;

Sizing size(int nodes, int local_ranks, std::size_t output_bytes,
            const Calibration& calibration = {}, int passes = 1) {
  return size_lockstep(Topology::make(nodes, local_ranks).value(),
                       {.output_bytes = output_bytes, .width = local_ranks, .passes = passes},
                       calibration)
      .value();
}

TEST(SizingTest, eight_nodes_of_eight_get_the_papers_four_four_and_four) {
  const Sizing sizing = size(8, 8, 64 * k_mib);
  EXPECT_EQ(sizing.sum_blocks, 4);
  EXPECT_EQ(sizing.landing_blocks, 4);
  EXPECT_EQ(sizing.transfers, 4);
  EXPECT_EQ(sizing.rounds, 2);
  EXPECT_DOUBLE_EQ(sizing.wire_seconds, 7 * 64.0 * k_mib / 47.5e9);
}

TEST(SizingTest, rounds_are_counted_as_the_waves_have_them) {
  for (int nodes = 1; nodes <= 64; ++nodes) {
    for (int width : {1, 2, 4, 8}) {
      for (int transfers = 1; transfers <= 9; ++transfers) {
        const WavePlan plan = WavePlan::make(Topology::make(nodes, 8).value(),
                                             {.width = width, .transfers = transfers})
                                  .value();
        ASSERT_EQ(count_rounds(nodes, width, transfers), static_cast<int>(plan.rounds().size()))
            << nodes << " nodes, waves of " << width << ", " << transfers << " transfers";
      }
    }
  }
}

TEST(SizingTest, fp32_gradients_double_what_level_one_reads) {
  const Topology topology = Topology::make(8, 8).value();
  SizingRequest request{.output_bytes = 64 * k_mib, .gradient = DType::float32, .width = 8};
  // 1.5 * (8 + 1) * 47.5 / 99 = 6.48
  EXPECT_EQ(size_lockstep(topology, request).value().sum_blocks, 7);
  request.gradient = DType::bfloat16;
  EXPECT_EQ(size_lockstep(topology, request).value().sum_blocks, 4);
}

TEST(SizingTest, landing_blocks_are_bound_by_the_ceiling_or_by_the_tail) {
  EXPECT_EQ(size(2, 8, 64 * k_mib).landing_blocks, 4) << "ceiling: 90 / 21";
  // 47.5 / (0.05 * 63 * 21) = 0.72
  EXPECT_EQ(size(64, 8, 64 * k_mib).landing_blocks, 1) << "tail";
  // 47.5 / (0.05 * 15 * 21) = 3.02, of which two passes leave half
  EXPECT_EQ(size(16, 8, 64 * k_mib).landing_blocks, 4);
  EXPECT_EQ(size(16, 8, 64 * k_mib, {}, 2).landing_blocks, 2);
}

TEST(SizingTest, rounds_are_widened_only_where_waiting_costs_and_widening_saves) {
  EXPECT_EQ(size(8, 8, 64 * k_mib).transfers, 4);
  // 4 rounds of 1.3 ms are less than a tenth of 7 * 1 GiB / 47.5 GB/s = 158 ms.
  EXPECT_EQ(size(8, 8, 1024 * k_mib).transfers, 2);
  EXPECT_EQ(size(3, 8, k_mib).transfers, 2) << "one round already";
  EXPECT_EQ(size(2, 8, k_mib).transfers, 1);
  EXPECT_EQ(size(64, 1, k_mib).transfers, 2) << "waves of one: no wider round saves any";
  Calibration wide;
  wide.most_transfers = 16;
  EXPECT_EQ(size(64, 16, k_mib, wide).transfers, 16);
}

TEST(SizingTest, one_node_has_no_rounds) {
  const Sizing sizing = size(1, 8, 64 * k_mib);
  EXPECT_EQ(sizing.transfers, 1);
  EXPECT_EQ(sizing.rounds, 0);
  EXPECT_EQ(sizing.wire_seconds, 0);
  EXPECT_EQ(sizing.landing_blocks, 4);
}

TEST(SizingTest, impossible_calibrations_and_requests_are_refused_by_name) {
  const Topology topology = Topology::make(8, 8).value();
  const SizingRequest request{.output_bytes = k_mib, .width = 8};
  Calibration no_rail;
  no_rail.rail_rate = 0;
  const auto refused = size_lockstep(topology, request, no_rail);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("rail_rate"), std::string::npos);
  Calibration no_transfers;
  no_transfers.most_transfers = 1;
  EXPECT_FALSE(size_lockstep(topology, request, no_transfers));
  EXPECT_FALSE(size_lockstep(topology, {.output_bytes = 0, .width = 8}));
  EXPECT_FALSE(size_lockstep(topology, {.output_bytes = 1, .width = 0}));
  EXPECT_FALSE(size_lockstep(topology, {.output_bytes = 1, .width = 8, .passes = 0}));
}

}  // namespace
}  // namespace headrace
