// Ranks that die or stop while all are in an all-gather on device memory, or before it began.

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "collective/lockstep_caller.h"
#include "support/cuda/device_world.h"

namespace headrace::testing {
namespace {

constexpr int k_victim = 1;
constexpr Milliseconds k_soon{5'000};

class DeviceLockstepFault : public DeviceWorldTest {
 protected:
  void SetUp() override {
    if (GetParam() < 2) {
      GTEST_SKIP() << "a rank alone has nobody to lose";
    }
    DeviceWorldTest::SetUp();
  }

  /// All gather call after call, until the victim does `fate` after a few; the others are told in
  /// `k_soon` whose fault it is, and their devices still work.
  static void expect_named(const PeerGroup& group, const std::function<void()>& fate,
                           const char* word) {
    run_ranks(group, [&](const Rank& self) {
      Caller caller(self, {.nodes = 1, .local_ranks = self.world_size}, small_chunks());
      const std::vector<ShardSource> shards = caller.write_shards(0, 0);
      std::vector<void*> landings;
      for (std::size_t p = 0; p < caller.spec(0).parameters.size(); ++p) {
        landings.push_back(caller.memory().allocate(caller.plan().map(0).landing_bytes(p)));
      }
      Status status;
      std::int64_t begin = now_ns();
      for (int call = 0; status; ++call) {
        if (self.rank == k_victim && call == 3) {
          // Its part has begun: peers have its call, and what the device did of it.
          const auto begun = caller.lockstep().start_all_gather(0, shards, landings, Event());
          fate();
          return;
        }
        begin = now_ns();
        status = caller.lockstep().all_gather(0, shards, landings);
      }
      EXPECT_EQ(status.error().rank, k_victim) << status.error().describe();
      EXPECT_NE(status.error().message.find(word), std::string::npos) << status.error().describe();
      EXPECT_LT(now_ns() - begin, k_soon.count() * 1'000'000);
      EXPECT_FALSE(caller.lockstep().all_gather(0, shards, landings)) << "the session is over";
      expect_device_works();
      ::usleep(300'000);  // others may still have to hear of it from here
    });
  }
};

TEST_P(DeviceLockstepFault, a_rank_Killed_in_an_all_gather_is_named_by_all) {
  PeerGroup group = device_world(GetParam());
  group.expected_to_die = {k_victim};
  expect_named(group, [] { ::raise(SIGKILL); }, "died");
}

TEST_P(DeviceLockstepFault, a_rank_Stopped_in_an_all_gather_is_named_by_all) {
  PeerGroup group = device_world(GetParam());
  group.liveness.silence = Milliseconds(1'000);
  group.expected_to_stop = {k_victim};
  expect_named(group, [] { ::raise(SIGSTOP); }, "silent");
}

TEST_P(DeviceLockstepFault, a_second_rank_Killed_while_the_first_is_dealt_with_changes_no_verdict) {
  if (GetParam() < 3) {
    GTEST_SKIP() << "needs a survivor";
  }
  constexpr int k_second = 2;
  PeerGroup group = device_world(GetParam());
  group.expected_to_die = {k_victim, k_second};
  run_ranks(group, [](const Rank& self) {
    auto transport = self.transport().value();
    const auto stream = transport->make_stream().value();
    if (self.rank == k_victim) {
      ::usleep(200'000);
      ::raise(SIGKILL);
    }
    ASSERT_TRUE(transport->channel(k_victim).wait(*stream, device_signal(k_victim, 20), 1, "word"));
    if (self.rank == k_second) {
      while (transport->liveness().check()) {
        ::usleep(100);
      }
      ::raise(SIGKILL);
    }
    const Status status = passed(*stream);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().rank, k_victim) << status.error().describe();
    ::usleep(300'000);
    EXPECT_EQ(transport->liveness().check().error().rank, k_victim);
    expect_device_works();
  });
}

// Behind the wait, the stream reads from the victim, adds to it and writes to it: all that is
// mapped stays, though nobody is behind it any more.
TEST_P(DeviceLockstepFault, what_follows_a_wait_for_a_Killed_rank_finds_its_memory) {
  PeerGroup group = device_world(GetParam());
  group.expected_to_die = {k_victim};
  run_ranks(group, [](const Rank& self) {
    auto transport = self.transport().value();
    if (self.rank == k_victim) {
      ::usleep(500'000);
      ::raise(SIGKILL);
    }
    const auto stream = transport->make_stream().value();
    const auto memory = self.memory();
    std::byte* local = memory->allocate(1 << 15);
    Channel& channel = transport->channel(k_victim);
    ASSERT_TRUE(channel.wait(*stream, device_signal(k_victim, 20), 1, "word"));
    const Piece piece{.remote_offset = k_device_control, .local = local, .bytes = 1 << 15};
    const Addend addend{
        .remote_offset = k_device_control, .local = local, .count = (1 << 15) / sizeof(float)};
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(channel.get(*stream, {&piece, 1}));
      ASSERT_TRUE(channel.accumulate(*stream, {}, {&addend, 1}));
      ASSERT_TRUE(channel.put(*stream, {&piece, 1}));
      ASSERT_TRUE(channel.signal(*stream, device_signal(self.rank, 20), 1));
    }
    const Status status = passed(*stream);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().rank, k_victim) << status.error().describe();
    expect_device_works();
    transport.reset();
    expect_device_works();
    ::usleep(300'000);
  });
}

// After it has told who it is, and before anybody has its memory.
TEST_P(DeviceLockstepFault, a_rank_Killed_while_all_are_wired_ends_the_start_of_all) {
  PeerGroup group = device_world(GetParam());
  group.expected_to_die = {k_victim};
  OtherTransport dying = *group.other;
  dying.make = [make = dying.make](TransportConfig config, const Exchange& exchange) {
    config.bootstrap = Milliseconds(2'000);
    return make(config, [&](const std::string& mine, Milliseconds limit) {
      auto all = exchange(mine, limit);
      if (config.identity.rank == k_victim) {
        ::raise(SIGKILL);
      }
      return all;
    });
  };
  group.other = std::make_shared<const OtherTransport>(std::move(dying));
  run_ranks(group, [](const Rank& self) {
    const std::int64_t begin = now_ns();
    auto transport = self.transport();
    ASSERT_FALSE(transport) << "with a rank that nobody has";
    EXPECT_LT(now_ns() - begin, std::int64_t{20'000'000'000}) << "the device's start included";
    expect_device_works();
  });
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceLockstepFault, ::testing::ValuesIn(gpu_worlds()));

}  // namespace
}  // namespace headrace::testing
