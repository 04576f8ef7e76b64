// A rank that dies or stops anywhere is named on every survivor, in time, and nothing of the job
// remains.

#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "support/memory_that_kills.h"
#include "support/sanitizers.h"
#include "support/session_group.h"
#include "support/shared_words.h"

namespace headrace::testing {
namespace {

constexpr int k_victim = 1;
constexpr Milliseconds k_silence{3000};

ModelSpec model() {
  return {.groups = {{.name = "g",
                      .parameters = {{.name = "w", .rows = 4096, .row_elements = 64},
                                     {.name = "b", .rows = 4096, .row_elements = 1}}}}};
}

struct Seat {
  Session& session;
  const Shards& shards;
  const std::vector<std::vector<std::vector<float>>>& values;

  Status open() {
    auto opened = session.open(BracketKind::minibatch, 0, 0, shards.sources());
    return opened ? Status() : Status(opened.error());
  }
  Status gather() {
    Landings landings(session.plan(), 0);
    return session.gather(0, landings.addresses());
  }
  Status push() {
    const auto ticket = session.push(0, {{.parameter = 0, .address = values[0][0].data()},
                                         {.parameter = 1, .address = values[0][1].data()}});
    return ticket ? Status() : Status(ticket.error());
  }
  Status settle() {
    HEADRACE_TRY(session.finish(0, 0, 0));
    auto settled = session.settle();
    return settled ? Status() : Status(settled.error());
  }
  Status minibatch() {
    HEADRACE_TRY(open());
    HEADRACE_TRY(gather());
    HEADRACE_TRY(push());
    return settle();
  }
};

// The victim runs two whole minibatches and then `last_words`, maybe before a survivor is through
// its second. Survivors train until they get an error, which must name the victim within `limit` of
// its death and of being in a call.
void expect_survivors_name_the_victim(PeerGroup group, const std::function<void(Seat&)>& last_words,
                                      Milliseconds limit, const std::string& expected_words,
                                      const SessionConfig& config = {}) {
  const std::shared_ptr<std::uint64_t> died = shared_words(1);
  run_ranks(group, [&](const Rank& self) {
    auto session = connect(self, model(), config);
    ASSERT_TRUE(session) << session.error().describe();
    const auto values = integer_values(model(), 3);
    const Shards shards((*session)->plan(), self.rank, values);
    Seat seat{.session = **session, .shards = shards, .values = values};
    if (self.rank == k_victim) {
      ASSERT_TRUE(seat.minibatch());
      ASSERT_TRUE(seat.minibatch());
      death_note = died.get();
      last_words(seat);
      FAIL() << "the victim lives";
    }
    Status status;
    std::int64_t begin = 0;
    for (int step = 0; step < 1000 && status; ++step) {
      begin = now_ns();
      status = seat.minibatch();
    }
    ASSERT_FALSE(status) << "no survivor may finish without the victim";
    EXPECT_EQ(status.error().rank, k_victim) << status.error().describe();
    EXPECT_NE(status.error().message.find(expected_words), std::string::npos)
        << status.error().describe();
    const auto since = std::max(begin, static_cast<std::int64_t>(*died));
    EXPECT_LT(now_ns() - since, limit.count() * 1'000'000) << status.error().describe();
    const Status again = seat.open();
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().rank, k_victim);
  });
}

PeerGroup processes(int world_size) {
  return {.backend = Backend::shm_processes, .world_size = world_size};
}

class KilledRankTest : public ::testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  void SetUp() override {
    if (k_sanitized) {
      GTEST_SKIP()
          << "sanitizers take the signals that these tests die by; the release suite runs them";
    }
  }
  void expect(const std::function<void(Seat&)>& last_words, SessionConfig config = {}) {
    config.worker_threads = std::get<1>(GetParam());
    PeerGroup group = processes(std::get<0>(GetParam()));
    group.expected_to_die = {k_victim};
    expect_survivors_name_the_victim(group, last_words, Milliseconds(5000), "rank 1 died", config);
  }
};

TEST_P(KilledRankTest, in_compute) {
  expect([](Seat& seat) {
    ASSERT_TRUE(seat.open());
    die();
  });
}

TEST_P(KilledRankTest, inside_gather) {
  expect([](Seat& seat) {
    ASSERT_TRUE(seat.open());
    std::byte* memory = memory_that_kills();
    const std::vector<void*> landings{memory, memory};
    (void)seat.session.gather(0, landings);
  });
}

TEST_P(KilledRankTest, inside_push_while_it_holds_a_lock) {
  expect([](Seat& seat) {
    ASSERT_TRUE(seat.open());
    (void)seat.session.push(0, {{.parameter = 0, .address = memory_that_kills()}});
    (void)seat.session.finish(0, 0, 0);
  });
}

TEST_P(KilledRankTest, inside_push_into_its_own_slot) {
  SessionConfig config;
  config.accumulate = Accumulation::reproducible;
  expect(
      [](Seat& seat) {
        ASSERT_TRUE(seat.open());
        ASSERT_TRUE(seat.push());  // a whole microbatch before the one it dies in
        (void)seat.session.push(0, {{.parameter = 0, .address = memory_that_kills()}});
        (void)seat.session.finish(0, 0, 0);
      },
      config);
}

TEST_P(KilledRankTest, inside_settle) {
  expect([](Seat& seat) {
    ASSERT_TRUE(seat.open());
    std::thread([] {
      std::this_thread::sleep_for(Milliseconds(50));
      die();
    }).detach();
    ASSERT_TRUE(seat.session.finish(0, 0, 0));
    for (;;) {
      (void)seat.session.settle();
    }
  });
}

TEST_P(KilledRankTest, with_forked_workers_that_live_on) {
  expect([](Seat& seat) {
    ASSERT_TRUE(seat.open());
    for (int worker = 0; worker < 2; ++worker) {
      if (::fork() == 0) {
        ::close(STDOUT_FILENO);  // or who reads the test's output would wait for the workers
        ::close(STDERR_FILENO);
        ::alarm(8);  // longer than survivors may need
        ::pause();
        ::_exit(0);
      }
    }
    die();
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, KilledRankTest,
                         ::testing::Combine(::testing::Values(2, 3, 4), ::testing::Bool()));

TEST(StoppedRankTest, is_named_after_the_silence_limit_and_not_before) {
  if (k_sanitized) {
    GTEST_SKIP() << "timing under a sanitizer says nothing; the release suite runs this";
  }
  PeerGroup group = processes(3);
  group.expected_to_stop = {k_victim};
  group.liveness.silence = k_silence;
  run_ranks(group, [](const Rank& self) {
    auto session = connect(self, model());
    ASSERT_TRUE(session) << session.error().describe();
    const auto values = integer_values(model(), 3);
    const Shards shards((*session)->plan(), self.rank, values);
    Seat seat{.session = **session, .shards = shards, .values = values};
    const std::int64_t begin = now_ns();  // before the victim stops: it needs all for a minibatch
    Status status;
    while (status) {
      status = seat.minibatch();
      if (self.rank == k_victim) {
        ASSERT_TRUE(status);
        ::raise(SIGSTOP);
        return;
      }
    }
    const auto passed = std::chrono::nanoseconds(now_ns() - begin);
    EXPECT_EQ(status.error().rank, k_victim) << status.error().describe();
    EXPECT_NE(status.error().message.find("silent"), std::string::npos);
    // The victim's last heartbeat is older than its stop, much older on a busy machine.
    EXPECT_GE(passed, k_silence / 2);
    EXPECT_LT(passed, k_silence + Milliseconds(5000));
  });
}

TEST(StoppedRankTest, a_short_stop_of_one_or_all_ranks_ends_nothing) {
  if (k_sanitized) {
    GTEST_SKIP() << "timing under a sanitizer says nothing; the release suite runs this";
  }
  PeerGroup group = processes(2);
  group.liveness.silence = Milliseconds(10'000);
  run_ranks(group, [](const Rank& self) {
    auto session = connect(self, model());
    ASSERT_TRUE(session) << session.error().describe();
    const auto values = integer_values(model(), 3);
    const Shards shards((*session)->plan(), self.rank, values);
    Seat seat{.session = **session, .shards = shards, .values = values};
    // A helper stops this rank for 0.7 s.
    const pid_t rank = ::getpid();
    const pid_t helper = ::fork();
    if (helper == 0) {
      ::kill(rank, SIGSTOP);
      ::usleep(700'000);
      ::kill(rank, SIGCONT);
      ::_exit(0);
    }
    bool went_on = false;
    for (std::uint64_t all = 0; all != 0b11;) {  // as many minibatches on both
      went_on = went_on || ::waitpid(helper, nullptr, WNOHANG) == helper;
      ASSERT_TRUE(seat.open());
      ASSERT_TRUE(seat.gather());
      ASSERT_TRUE(seat.push());
      ASSERT_TRUE((*session)->finish(0, 0, went_on ? std::uint64_t{1} << self.rank : 0));
      const auto settled = (*session)->settle();
      ASSERT_TRUE(settled) << settled.error().describe();
      all = settled->flags;
    }
    (*session)->close();
  });
}

int open_descriptors() {
  int count = 0;
  DIR* directory = ::opendir("/proc/self/fd");
  while (::readdir(directory) != nullptr) {
    ++count;
  }
  ::closedir(directory);
  return count;
}

std::size_t mapped_arena_bytes() {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  std::size_t total = 0;
  while (std::getline(maps, line)) {
    if (line.find("memfd:headrace") != std::string::npos) {
      unsigned long begin = 0;
      unsigned long end = 0;
      if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) == 2) {
        total += end - begin;
      }
    }
  }
  return total;
}

TEST(ResourceTest, a_closed_session_leaves_no_descriptor_and_no_mapping) {
  run_ranks(
      {.backend = k_sanitized ? Backend::shm_threads : Backend::shm_processes, .world_size = 2},
      [](const Rank& self) {
        if (self.config.identity.world_size > 1 && k_sanitized) {
          return;  // threads share the process's tables; the release suite counts
        }
        const int before = open_descriptors();
        {
          auto session = connect(self, model());
          ASSERT_TRUE(session) << session.error().describe();
          // Every rank maps its own memory and its peer's, and nothing else.
          EXPECT_EQ(mapped_arena_bytes(), 2 * (*session)->counters().arena_bytes);
          const auto values = integer_values(model(), 3);
          const Shards shards((*session)->plan(), self.rank, values);
          Seat seat{.session = **session, .shards = shards, .values = values};
          for (int step = 0; step < 200; ++step) {
            ASSERT_TRUE(seat.minibatch());
          }
          EXPECT_EQ(mapped_arena_bytes(), 2 * (*session)->counters().arena_bytes);
          (*session)->close();
        }
        EXPECT_EQ(open_descriptors(), before);
        EXPECT_EQ(mapped_arena_bytes(), 0U);
      });
}

TEST(ForkTest, a_child_has_no_engine_memory_and_its_calls_are_refused) {
  if (k_sanitized) {
    GTEST_SKIP() << "forks inside ranks; the release suite runs this";
  }
  run_ranks(processes(2), [](const Rank& self) {
    auto session = connect(self, model());
    ASSERT_TRUE(session) << session.error().describe();
    const auto values = integer_values(model(), 3);
    const Shards shards((*session)->plan(), self.rank, values);
    Seat seat{.session = **session, .shards = shards, .values = values};
    const pid_t child = ::fork();
    if (child == 0) {
      const bool refused = !seat.open() && mapped_arena_bytes() == 0;
      session->reset();  // must neither hang nor unmap what is not there
      ::_exit(refused ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(seat.minibatch());
    (*session)->close();
  });
}

}  // namespace
}  // namespace headrace::testing
