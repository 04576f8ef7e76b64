#include "replay/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replay/arms.h"

namespace headrace::replay {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t k_ms = 1'000'000;

// Compute of a rank, and times in which it waited and communicated, in milliseconds.
StepTimes step(std::int64_t begin, std::int64_t end, std::int64_t compute, std::int64_t waiting,
               std::int64_t work) {
  StepTimes times{.begin_ns = begin * k_ms,
                  .end_ns = end * k_ms,
                  .compute_ns = compute * k_ms,
                  .waiting_ns = waiting * k_ms};
  times.calls[static_cast<std::size_t>(CallKind::gather)] = {
      .calls = 1, .work_ns = work * k_ms, .waited_ns = 0};
  return times;
}

Arm arm(Way way, std::vector<std::vector<std::int64_t>> ms) {
  for (auto& rank : ms) {
    for (std::int64_t& microbatch : rank) {
      microbatch *= k_ms;
    }
  }
  return {.name = "arm", .way = way, .minibatches = {ms}};
}

TEST(Ideal, is_the_costliest_rank_on_demand_and_the_costliest_of_each_step_else) {
  const std::vector<std::vector<std::int64_t>> ms{{4, 1}, {2, 2}};
  EXPECT_EQ(ideal_ns(arm(Way::on_demand, ms)), std::vector<double>{5.0 * k_ms});
  EXPECT_EQ(ideal_ns(arm(Way::lockstep, ms)), std::vector<double>{6.0 * k_ms});
}

TEST(Report, tells_compute_communication_and_waiting_apart) {
  // Rank 0: 80 of compute, 20 exposed. Rank 1: 50 of compute, 40 of waiting, 10 exposed.
  const ArmTimes times{{step(0, 100, 80, 0, 60), step(1, 101, 50, 40, 40)}};
  const ArmReport found = report(arm(Way::on_demand, {{80}, {50}}), times);
  EXPECT_DOUBLE_EQ(found.step_ms, 101);  // from the first begin to the last end
  EXPECT_DOUBLE_EQ(found.ideal_ms, 80);
  EXPECT_DOUBLE_EQ(found.over_ideal, 101.0 / 80.0);
  EXPECT_DOUBLE_EQ(found.waiting_ms, 20);
  EXPECT_DOUBLE_EQ(found.communication, 100.0 / 130.0);
  EXPECT_DOUBLE_EQ(found.overlap, 0.7);
  ASSERT_EQ(found.ranks.size(), 2U);
  EXPECT_DOUBLE_EQ(found.ranks[1].compute, 0.5);
  EXPECT_DOUBLE_EQ(found.ranks[1].communication, 0.1);
  EXPECT_DOUBLE_EQ(found.ranks[1].waiting, 0.4);
  EXPECT_THAT(bars(found, 10), HasSubstr("rank 1 #####+...."));
}

TEST(Times, survive_the_way_between_processes) {
  const std::vector<ArmTimes> sent{{{step(1, 9, 5, 2, 3)}, {step(10, 19, 6, 1, 2)}}};
  std::vector<ArmTimes> got{ArmTimes(2)};
  add_text(got, to_text(sent));
  add_text(got, to_text(sent));  // a second rank
  ASSERT_EQ(got[0][1].size(), 2U);
  EXPECT_EQ(got[0][1][1].end_ns, 19 * k_ms);
  EXPECT_EQ(got[0][1][1].waiting_ns, 1 * k_ms);
  EXPECT_EQ(got[0][1][1].work_ns(), 2 * k_ms);
  EXPECT_EQ(step_ns(got[0][0]), 8 * k_ms);
}

}  // namespace
}  // namespace headrace::replay
