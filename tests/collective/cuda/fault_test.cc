// Ranks that die, stop or do nothing while streams of the others wait for them: every survivor is
// told who, and its streams are free again.

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "support/cuda/cuda_group.h"
#include "support/cuda/worlds.h"

namespace headrace::testing {
namespace {

constexpr std::size_t k_signals = 4096;
constexpr int k_victim = 1;
constexpr Milliseconds k_soon{5'000};

class DeviceFault : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (GetParam() < 2) {
      GTEST_SKIP() << "a rank alone has nobody to lose";
    }
    skip_unless_runnable(group());
  }
  static PeerGroup group() {
    PeerGroup group = cuda_group(DeviceMemoryKind::mapped, GetParam());
    group.control_bytes = 2 * k_signals;
    group.limit = Milliseconds(40'000);
    return group;
  }

  /// The victim does `fate` while the streams of all others wait for it; each learns its name in
  /// `within`, and its stream then passes.
  static void expect_named(const PeerGroup& group, const std::function<void(Transport&)>& fate,
                           Milliseconds within, const char* word) {
    run_ranks(group, [&](const Rank& self) {
      auto transport = self.transport();
      ASSERT_TRUE(transport) << transport.error().describe();
      if (self.rank == k_victim) {
        ::usleep(300'000);
        fate(**transport);
        return;
      }
      auto stream = (*transport)->make_stream();
      ASSERT_TRUE(stream) << stream.error().describe();
      const std::int64_t begin = now_ns();
      Channel& channel = (*transport)->channel(k_victim);
      ASSERT_TRUE(channel.wait(**stream, k_signals + k_victim * 16, 1, "greeting"));
      auto event = (*stream)->record();
      ASSERT_TRUE(event) << event.error().describe();
      const Status status = event->wait(Deadline(Milliseconds(30'000)));
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().rank, k_victim) << status.error().describe();
      EXPECT_NE(status.error().message.find(word), std::string::npos) << status.error().describe();
      EXPECT_LT(now_ns() - begin, within.count() * 1'000'000);
      EXPECT_TRUE(event->done());
      EXPECT_FALSE(channel.signal(**stream, k_signals, 1)) << "the session is over";
      ::usleep(500'000);  // others still have to hear of it from here
    });
  }
};

TEST_P(DeviceFault, a_Stalled_rank_is_named_after_the_limit) {
  PeerGroup limited = group();
  limited.wait.no_progress = Milliseconds(1'000);
  expect_named(limited, [](Transport&) { ::usleep(3'000'000); }, k_soon, "no greeting");
}

TEST_P(DeviceFault, a_Stalled_rank_that_leaves_is_named) {
  expect_named(
      group(),
      [](Transport& transport) {
        transport.liveness().leave();
        ::usleep(2'000'000);
      },
      k_soon, "left");
}

TEST_P(DeviceFault, a_Stopped_rank_is_named_after_the_silence) {
  PeerGroup silent = group();
  silent.liveness.silence = Milliseconds(1'000);
  silent.expected_to_stop = {k_victim};
  expect_named(silent, [](Transport&) { ::raise(SIGSTOP); }, k_soon, "silent");
}

TEST_P(DeviceFault, a_Killed_rank_is_named_at_once) {
  PeerGroup dying = group();
  dying.expected_to_die = {k_victim};
  expect_named(dying, [](Transport&) { ::raise(SIGKILL); }, k_soon, "died");
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceFault, ::testing::ValuesIn(gpu_worlds()));

}  // namespace
}  // namespace headrace::testing
