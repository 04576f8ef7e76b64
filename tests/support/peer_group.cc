#include "support/peer_group.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "support/sanitizers.h"
#include "transport/exchange.h"
#include "transport/fake/fake_transport.h"
#include "transport/shm/shm_transport.h"

namespace headrace::testing {
namespace {

Rank make_rank(const PeerGroup& group, int rank, MakeTransport make) {
  const TransportConfig config{.identity = {.rank = rank,
                                            .world_size = group.world_size,
                                            .version = "test",
                                            .fingerprint = "",
                                            .model = 1,
                                            .model_text = "a test"},
                               .local_ranks = group.local_ranks,
                               .memory_bytes = group.memory_bytes,
                               .control_bytes = group.control_bytes,
                               .liveness = group.liveness,
                               .wait = group.wait,
                               .bootstrap = group.limit,
                               .interrupted = nullptr};
  return {.rank = rank,
          .world_size = group.world_size,
          .config = config,
          .make = std::move(make),
          .memory = group.other == nullptr ? host_memory : group.other->memory};
}

// Ends the whole program: threads cannot be killed one by one.
class ThreadWatchdog {
 public:
  explicit ThreadWatchdog(Milliseconds limit)
      : thread_([this, limit] {
          std::unique_lock lock(mutex_);
          if (!done_.wait_for(lock, limit, [this] { return is_done_; })) {
            std::fprintf(stderr, "ranks were not done after %lld ms\n",
                         static_cast<long long>(limit.count()));
            std::abort();
          }
        }) {}
  ~ThreadWatchdog() {
    {
      const std::lock_guard lock(mutex_);
      is_done_ = true;
    }
    done_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  bool is_done_ = false;
  std::thread thread_;
};

void run_threads(const PeerGroup& group, const std::function<void(const Rank&)>& body) {
  ThreadExchange exchange(group.world_size);
  auto hub = std::make_shared<FakeHub>(group.world_size);
  const ThreadWatchdog watchdog(group.limit);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < group.world_size; ++rank) {
    threads.emplace_back([&, rank] {
      body(make_rank(group, rank, [&, rank](const TransportConfig& config) {
        return group.backend == Backend::fake
                   ? make_fake_transport(config, exchange.for_rank(rank), hub, group.faults)
                   : make_shm_transport(config, exchange.for_rank(rank));
      }));
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

struct Child {
  pid_t pid = 0;
  bool running = true;
};

void report_end(const PeerGroup& group, int rank, int status) {
  if (WIFSIGNALED(status)) {
    EXPECT_TRUE(group.expected_to_die.contains(rank))
        << "rank " << rank << " was ended by signal " << WTERMSIG(status);
  } else {
    EXPECT_EQ(WEXITSTATUS(status), 0)
        << "expectations failed on rank " << rank << " (see its output)";
    EXPECT_FALSE(group.expected_to_die.contains(rank)) << "rank " << rank << " did not die";
  }
}

void run_processes(const PeerGroup& group, const std::function<void(const Rank&)>& body) {
  auto exchange = ForkExchange::make(group.world_size);
  ASSERT_TRUE(exchange) << exchange.error().describe();
  std::vector<Child> children;
  for (int rank = 0; rank < group.world_size; ++rank) {
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      body(make_rank(group, rank, [&, rank](const TransportConfig& config) {
        return group.other == nullptr ? make_shm_transport(config, exchange->for_rank(rank))
                                      : group.other->make(config, exchange->for_rank(rank));
      }));
      std::fflush(nullptr);
      ::_exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back({.pid = pid});
  }
  const Deadline deadline(group.limit);
  const auto waiting_for = [&] {
    int count = 0;
    for (int rank = 0; rank < group.world_size; ++rank) {
      count +=
          children[static_cast<std::size_t>(rank)].running && !group.expected_to_stop.contains(rank)
              ? 1
              : 0;
    }
    return count;
  };
  while (waiting_for() > 0 && !deadline.passed()) {
    for (int rank = 0; rank < group.world_size; ++rank) {
      Child& child = children[static_cast<std::size_t>(rank)];
      int status = 0;
      if (child.running && ::waitpid(child.pid, &status, WNOHANG) == child.pid) {
        child.running = false;
        report_end(group, rank, status);
      }
    }
    ::usleep(2000);
  }
  for (int rank = 0; rank < group.world_size; ++rank) {
    const Child& child = children[static_cast<std::size_t>(rank)];
    if (child.running) {
      EXPECT_TRUE(group.expected_to_stop.contains(rank))
          << "rank " << rank << " was not done after " << group.limit.count() << " ms";
      ::kill(child.pid, SIGKILL);
      ::waitpid(child.pid, nullptr, 0);
    }
  }
}

}  // namespace

void PrintTo(Backend backend, std::ostream* stream) {
  *stream << (backend == Backend::fake          ? "fake"
              : backend == Backend::shm_threads ? "shm_threads"
                                                : "shm_processes");
}

void PrintTo(const PeerGroup& group, std::ostream* stream) {
  if (group.other != nullptr) {
    *stream << group.other->name;
  } else {
    PrintTo(group.backend, stream);
  }
  *stream << "_of_" << group.world_size;
}

void skip_unless_runnable(const PeerGroup& group) {
  if (const std::string reason = group.other == nullptr ? "" : group.other->why_not();
      !reason.empty()) {
    GTEST_SKIP() << reason;
  }
}

std::vector<Backend> backends() {
  std::vector<Backend> all{Backend::fake, Backend::shm_threads};
  if (!k_thread_sanitized) {
    all.push_back(Backend::shm_processes);
  }
  return all;
}

void run_ranks(const PeerGroup& group, const std::function<void(const Rank&)>& body) {
  if (group.backend == Backend::shm_processes) {
    run_processes(group, body);
  } else {
    run_threads(group, body);
  }
}

}  // namespace headrace::testing
