// Real sessions on forked ranks: every step's bytes and sums are checked by the run itself.

#include "replay/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "base/clock.h"
#include "bench/rank_processes.h"
#include "replay/decoder.h"

namespace headrace::replay {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t k_us = 1'000;

ModelSpec tiny() {
  return decoder_spec({.hidden = 24,
                       .layers = 3,
                       .heads = 2,
                       .kv_heads = 1,
                       .head_size = 12,
                       .intermediate = 40,
                       .vocabulary = 101},
                      1);
}

Run small_run(std::vector<Arm> arms) {
  return {.ranks = 3,
          .model = tiny(),
          .arms = std::move(arms),
          .limits = {.all = Milliseconds(60'000), .after_failure = Milliseconds(5'000)}};
}

const Minibatch k_even{{200 * k_us, 100 * k_us}, {300 * k_us, 100 * k_us}, {100 * k_us, 0}};
const Minibatch k_uneven{{200 * k_us, 100 * k_us, 50 * k_us}, {}, {300 * k_us}};

class EveryThreading : public ::testing::TestWithParam<bool> {};

TEST_P(EveryThreading, all_ways_move_the_same_bytes_and_compute_as_long_as_told) {
  auto run = small_run({});
  run.on_worker = GetParam();
  for (const Way way : k_ways) {
    run.arms.push_back({.name = to_string(way), .way = way, .minibatches = {k_even, k_even}});
  }
  const auto times = run_ranks(run);
  ASSERT_TRUE(times) << times.error().describe();
  ASSERT_EQ(times->size(), 3U);
  const std::uint64_t bytes = times->front().front().front().bytes;
  EXPECT_GT(bytes, 0U);
  for (const ArmTimes& arm : times.value()) {
    ASSERT_EQ(arm.size(), 2U);
    for (const auto& step : arm) {
      ASSERT_EQ(step.size(), 3U);
      for (std::size_t rank = 0; rank < step.size(); ++rank) {
        EXPECT_EQ(step[rank].bytes, bytes);
        // 3 layers of forward and backward: whole nanoseconds each, rounded down.
        EXPECT_NEAR(static_cast<double>(step[rank].compute_ns),
                    static_cast<double>(k_even[rank][0] + k_even[rank][1]), 12);
        EXPECT_GE(step[rank].step_ns(), step[rank].compute_ns);
        // The root once, three layers twice, in each of two microbatches.
        EXPECT_EQ(step[rank].calls[static_cast<std::size_t>(CallKind::gather)].calls, 14);
        EXPECT_EQ(step[rank].calls[static_cast<std::size_t>(CallKind::reduce)].calls, 8);
      }
    }
  }
}

TEST_P(EveryThreading, on_demand_ranks_may_differ_in_microbatches_none_included) {
  auto run = small_run({{.name = "uneven", .way = Way::on_demand, .minibatches = {k_uneven}}});
  run.on_worker = GetParam();
  const auto times = run_ranks(run);
  ASSERT_TRUE(times) << times.error().describe();
  const auto& step = times->front().front();
  EXPECT_EQ(step[0].calls[static_cast<std::size_t>(CallKind::reduce)].calls, 12);
  EXPECT_EQ(step[1].calls[static_cast<std::size_t>(CallKind::reduce)].calls, 0);
  EXPECT_EQ(step[1].bytes, 0U);
}

INSTANTIATE_TEST_SUITE_P(Replay, EveryThreading, ::testing::Bool(),
                         [](const auto& threads) { return threads.param ? "workers" : "inline"; });

TEST(Replay, lockstep_with_unequal_counts_is_refused_before_a_rank_starts) {
  const auto times =
      run_ranks(small_run({{.name = "uneven", .way = Way::lockstep, .minibatches = {k_uneven}}}));
  ASSERT_FALSE(times);
  EXPECT_THAT(times.error().message, HasSubstr("all ranks need as many microbatches"));
}

// Fails or dies on rank 1 before the second step of one arm of each way.
Result<std::vector<ArmTimes>> run_with(std::function<Status(int, int)> before_step) {
  auto run = small_run({});
  for (const Way way : k_ways) {
    run.arms.push_back({.name = to_string(way), .way = way, .minibatches = {k_even, k_even}});
  }
  run.before_step = std::move(before_step);
  return run_ranks(run);
}

TEST(Replay, a_rank_that_fails_ends_the_run_in_seconds_with_its_error) {
  const std::int64_t begin = now_ns();
  const auto times = run_with([](int rank, int step) {
    return rank == 1 && step == 1 ? Status(operation_error("out of tea")) : Status();
  });
  ASSERT_FALSE(times);
  EXPECT_THAT(times.error().message, HasSubstr("rank 1 failed: out of tea"));
  EXPECT_LT(now_ns() - begin, 30 * std::int64_t{1'000'000'000});
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);  // no child is left
  EXPECT_EQ(errno, ECHILD);
}

TEST(Replay, a_rank_that_is_killed_ends_the_run_and_is_named) {
  const auto times = run_with([](int rank, int step) {
    if (rank == 1 && step == 1) {
      ::raise(SIGKILL);
    }
    return Status();
  });
  ASSERT_FALSE(times);
  EXPECT_THAT(times.error().message, HasSubstr("rank 1 was ended by signal 9"));
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
}

TEST(Replay, a_rank_that_fails_over_its_peer_and_ends_first_does_not_hide_it) {
  const auto ended =
      bench::run_rank_processes(2, bench::Placement::free, {}, [](int rank) -> Result<std::string> {
        if (rank == 0) {
          return peer_error(1, "rank 1 is out of tea");
        }
        std::this_thread::sleep_for(Milliseconds(300));  // for the other to be first
        return operation_error("out of tea");
      });
  ASSERT_FALSE(ended);
  EXPECT_THAT(ended.error().message, HasSubstr("rank 1 failed: out of tea"));
}

TEST(Replay, a_rank_that_hangs_ends_the_run_at_its_limit) {
  auto run = small_run({{.name = "hang", .way = Way::on_demand, .minibatches = {k_even}}});
  run.limits.all = Milliseconds(1'500);
  run.before_step = [](int rank, int) {
    if (rank == 2) {
      ::pause();
    }
    return Status();
  };
  const auto times = run_ranks(run);
  ASSERT_FALSE(times);
  EXPECT_THAT(times.error().message, HasSubstr("not done within 1 s"));
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
}

TEST(Replay, memory_grows_with_ranks_and_ways) {
  auto run = small_run({{.name = "a", .way = Way::on_demand, .minibatches = {k_even}}});
  const std::size_t one = memory_bytes(run).value();
  run.arms.push_back({.name = "b", .way = Way::packed, .minibatches = {k_even}});
  EXPECT_GT(memory_bytes(run).value(), one);
}

}  // namespace
}  // namespace headrace::replay
