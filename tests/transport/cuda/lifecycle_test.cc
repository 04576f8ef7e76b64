// Transports that go at the wrong time, or in the wrong process, and what they leave behind.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "support/cuda/device_world.h"
#include "transport/cuda/cuda_transport.h"
#include "transport/exchange.h"
#include "transport/meet.h"

namespace headrace::testing {
namespace {

constexpr std::int64_t k_second_ns = 1'000'000'000;

/// Waits for rank `peer` on the stream, for a signal that nobody sets.
Status wait_in_vain(Transport& transport, Stream& stream, int peer) {
  return transport.channel(peer).wait(stream, device_signal(peer, 20), 1, "greeting");
}

class DeviceLifecycle : public DeviceWorldTest {};

TEST_P(DeviceLifecycle, one_that_goes_while_its_stream_waits_is_gone_soon_and_its_peers_are_told) {
  if (GetParam() < 2) {
    GTEST_SKIP() << "a rank alone has no peers";
  }
  run_ranks(device_world(GetParam()), [](const Rank& self) {
    constexpr int k_leaver = 1;
    auto transport = self.transport().value();
    auto stream = transport->make_stream().value();
    const int peer = self.rank == k_leaver ? 0 : k_leaver;
    ASSERT_TRUE(wait_in_vain(*transport, *stream, peer));
    auto event = stream->record().value();
    if (self.rank == k_leaver) {
      ::usleep(200'000);
      const std::int64_t begin = now_ns();
      stream.reset();
      transport.reset();
      EXPECT_LT(now_ns() - begin, 2 * k_second_ns);
      EXPECT_TRUE(event.done()) << "it let go of its streams";
      const Status late = event.wait(Deadline(Milliseconds(1'000)));
      ASSERT_FALSE(late) << "the transport that would know what went wrong has gone";
      expect_device_works();
      ::usleep(1'000'000);  // others look at its page
      return;
    }
    const Status status = event.wait(Deadline(Milliseconds(10'000)));
    ASSERT_FALSE(status) << "what an abandoned stream does is no result";
    EXPECT_EQ(status.error().rank, k_leaver) << status.error().describe();
    EXPECT_NE(status.error().message.find("still waited for"), std::string::npos)
        << status.error().message;
    expect_device_works();
  });
}

TEST_P(DeviceLifecycle, one_that_goes_while_copies_run_waits_for_them) {
  PeerGroup group = device_world(GetParam());
  group.memory_bytes = std::size_t{256} << 20;
  run_ranks(group, [](const Rank& self) {
    auto transport = self.transport().value();
    auto stream = transport->make_stream().value();
    const auto memory = self.memory();
    const std::size_t bytes = self.config.memory_bytes - k_device_control;
    std::byte* landing = memory->allocate(bytes);
    ASSERT_TRUE(meet(*transport, *stream, self.rank, self.world_size, k_device_signals, 1, "all"));
    ASSERT_TRUE(passed(*stream));
    for (int i = 0; i < 100; ++i) {
      const Piece piece{.remote_offset = k_device_control, .local = landing, .bytes = bytes};
      ASSERT_TRUE(transport->channel((self.rank + 1) % self.world_size).get(*stream, {&piece, 1}));
    }
    const auto event = stream->record().value();
    EXPECT_FALSE(event.done()) << "too fast to show anything";
    transport->liveness().leave();
    stream.reset();
    transport.reset();
    EXPECT_TRUE(event.done());
    expect_device_works();  // no copy was left to find its memory gone
  });
}

TEST_P(DeviceLifecycle, making_and_dropping_it_again_and_again_leaves_nothing_behind) {
  if (GetParam() > 1) {
    GTEST_SKIP() << "a rank alone, whose memory nobody else changes";
  }
  const auto count_files = [] {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
  };
  for (const DeviceMemoryKind kind : {DeviceMemoryKind::mapped, DeviceMemoryKind::ipc}) {
    PeerGroup group = cuda_group(kind, 1);
    group.control_bytes = k_device_control;
    group.memory_bytes = std::size_t{64} << 20;
    run_ranks(group, [&](const Rank& self) {
      std::size_t free_before = 0;
      std::size_t total = 0;
      std::ptrdiff_t files_before = 0;
      for (int time = 0; time < 8; ++time) {
        {
          ThreadExchange alone(1);
          auto transport =
              make_cuda_transport(self.config, alone.for_rank(0), {.memory = kind}).value();
          const auto stream = transport->make_stream().value();
          const auto landing = transport->allocate(1 << 20).value();
          ASSERT_TRUE(meet(*transport, *stream, 0, 1, k_device_signals, 1, "itself"));
          ASSERT_TRUE(passed(*stream));
        }
        if (time == 1) {  // the driver has what it keeps
          ASSERT_EQ(cudaMemGetInfo(&free_before, &total), cudaSuccess);
          files_before = count_files();
        }
      }
      std::size_t free_after = 0;
      ASSERT_EQ(cudaMemGetInfo(&free_after, &total), cudaSuccess);
      EXPECT_LT(free_before, free_after + (std::size_t{128} << 20)) << "less than two of them";
      EXPECT_EQ(count_files(), files_before);
    });
  }
}

TEST_P(DeviceLifecycle, a_forked_child_that_drops_it_ends_and_disturbs_nobody) {
  run_ranks(device_world(GetParam()), [](const Rank& self) {
    auto transport = self.transport().value();
    auto stream = transport->make_stream().value();
    ASSERT_TRUE(meet(*transport, *stream, self.rank, self.world_size, k_device_signals, 1, "all"));
    ASSERT_TRUE(passed(*stream));
    const pid_t child = ::fork();
    if (child == 0) {
      stream.reset();
      transport.reset();
      ::_exit(0);
    }
    int status = 0;
    const Deadline deadline(Milliseconds(5'000));
    while (::waitpid(child, &status, WNOHANG) == 0 && !deadline.passed()) {
      ::usleep(1'000);
    }
    if (deadline.passed()) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
    }
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
    ASSERT_TRUE(meet(*transport, *stream, self.rank, self.world_size, k_device_signals, 2, "all"));
    const Status passed_again = passed(*stream);
    EXPECT_TRUE(passed_again) << passed_again.error().describe();
    transport->liveness().leave();
    expect_device_works();
  });
}

// As many streams as may wait, each for the next one of the peer: the last is given its signal
// last.
TEST_P(DeviceLifecycle, as_many_streams_wait_as_there_are_queues_for) {
  const char* queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  CudaOptions options;
  options.streams = std::min(
      16, (queues == nullptr ? 8 : static_cast<int>(std::strtol(queues, nullptr, 10))) - 1);
  run_ranks(device_world(GetParam(), options), [&](const Rank& self) {
    const auto transport = self.transport().value();
    const int peer = (self.rank + 1) % self.world_size;
    const int before = (self.rank + self.world_size - 1) % self.world_size;
    constexpr int k_first = 20;
    std::vector<std::unique_ptr<Stream>> streams;
    for (int i = 0; i < options.streams; ++i) {
      streams.push_back(transport->make_stream().value());
      if (i + 1 < options.streams) {
        ASSERT_TRUE(transport->channel(before).wait(
            *streams.back(), device_signal(before, k_first + i + 1), 1, "turn"));
      }
      ASSERT_TRUE(transport->channel(peer).signal(*streams.back(),
                                                  device_signal(self.rank, k_first + i), 1));
    }
    for (auto& stream : streams) {
      const Status status = passed(*stream, Milliseconds(10'000));
      ASSERT_TRUE(status) << status.error().describe();
    }
    ASSERT_TRUE(
        meet(*transport, *streams[0], self.rank, self.world_size, k_device_signals, 1, "the end"));
    ASSERT_TRUE(passed(*streams[0]));
    transport->liveness().leave();
  });
}

// Ranks as threads of one process.
TEST_P(DeviceLifecycle, threads_of_one_process_can_be_ranks) {
  if (GetParam() != 2) {
    GTEST_SKIP() << "one process with two threads, whatever the ranks";
  }
  run_ranks(device_world(1), [](const Rank& process) {
    constexpr int k_ranks = 2;
    ThreadExchange exchange(k_ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < k_ranks; ++rank) {
      threads.emplace_back([&, rank] {
        TransportConfig config = process.config;
        config.identity.rank = rank;
        config.identity.world_size = k_ranks;
        auto made = make_cuda_transport(config, exchange.for_rank(rank));
        ASSERT_TRUE(made) << made.error().describe();
        auto transport = std::move(made).value();
        const auto stream = transport->make_stream().value();
        const auto memory = process.memory();
        const float* ones = memory->copy_of(std::vector<float>(1000, 1.0F));
        for (int owner = 0; owner < k_ranks; ++owner) {
          const Addend addend{.remote_offset = k_device_control, .local = ones, .count = 1000};
          ASSERT_TRUE(transport->channel(owner).accumulate(*stream, {}, {&addend, 1}));
        }
        ASSERT_TRUE(meet(*transport, *stream, rank, k_ranks, k_device_signals, 1, "sums"));
        const Status status = passed(*stream);
        ASSERT_TRUE(status) << status.error().describe();
        EXPECT_EQ(memory->values<float>(transport->at(k_device_control), 1000),
                  std::vector<float>(1000, k_ranks));
        ASSERT_TRUE(meet(*transport, *stream, rank, k_ranks, k_device_signals, 2, "the end"));
        ASSERT_TRUE(passed(*stream));
        transport->liveness().leave();
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    expect_device_works();
  });
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceLifecycle);
INSTANTIATE_TEST_SUITE_P(Cuda, DeviceLifecycle, ::testing::ValuesIn(gpu_worlds_up_to(2)));

}  // namespace
}  // namespace headrace::testing
