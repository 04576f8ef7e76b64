// What runs beside the caller with worker threads: in which order, whose memory it is until when,
// and how it ends.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <latch>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "session/lockstep_seat.h"
#include "support/sanitizers.h"
#include "transport/chunk_lock.h"

namespace headrace::testing {
namespace {

constexpr std::size_t k_groups = 4;

ModelSpec small_groups() {
  ModelSpec model;
  for (std::size_t group = 0; group < k_groups; ++group) {
    const std::string name(1, static_cast<char>('a' + group));
    model.groups.push_back({.name = name,
                            .parameters = {{.name = name + ".w", .rows = 67, .row_elements = 31},
                                           {.name = name + ".b", .rows = 5, .row_elements = 1}}});
  }
  return model;
}

/// The last group is large, so that its gather takes a while.
ModelSpec one_large_group() {
  ModelSpec model = small_groups();
  model.groups.back().parameters.push_back({.name = "large",
                                            .rows = k_sanitized ? 256 : 4096,
                                            .row_elements = 1024,
                                            .dtype = DType::float32});
  return model;
}

/// One rank in on-demand brackets.
struct Place {
  Place(const Rank& self, const ModelSpec& model, bool worker_threads,
        SessionMode mode = SessionMode::on_demand)
      : session(make(self, model, worker_threads, mode)),
        values(integer_values(model, 9)),
        shards(session->plan(), self.rank, values) {}

  static std::unique_ptr<Session> make(const Rank& self, const ModelSpec& model,
                                       bool worker_threads, SessionMode mode) {
    SessionConfig config;
    config.worker_threads = worker_threads;
    config.mode = mode;
    return connect(self, model, config).value();
  }
  Status open(BracketKind kind = BracketKind::minibatch) {
    const auto epoch = session->open(kind, 0, 0, shards.sources());
    return epoch ? Status() : Status(epoch.error());
  }
  Result<std::uint64_t> push(std::size_t group) {
    std::vector<GradientSource> sources;
    for (std::size_t p = 0; p < values[group].size(); ++p) {
      sources.push_back({.parameter = p, .address = values[group][p].data()});
    }
    return session->push(group, sources);
  }
  Status settle() {
    HEADRACE_TRY(session->finish(0, 0, 0));
    const auto settled = session->settle();
    return settled ? Status() : Status(settled.error());
  }
  void expect_gathered(std::size_t group, const Landings& landings) const {
    for (std::size_t p = 0; p < values[group].size(); ++p) {
      EXPECT_EQ(landings.values(p), values[group][p]);
    }
  }

  std::unique_ptr<Session> session;
  std::vector<std::vector<std::vector<float>>> values;
  Shards shards;
};

class WorkerThreadsTest : public ::testing::TestWithParam<bool> {};

TEST_P(WorkerThreadsTest, several_gathers_under_way_are_exact_whichever_is_waited_for_first) {
  run_ranks({.backend = Backend::shm_threads, .world_size = 3}, [](const Rank& self) {
    Place place(self, small_groups(), GetParam());
    for (int step = 0; step < 8; ++step) {
      ASSERT_TRUE(place.open());
      std::vector<std::unique_ptr<Landings>> landings;
      for (std::size_t group = 0; group < k_groups; ++group) {
        landings.push_back(std::make_unique<Landings>(place.session->plan(), group));
        ASSERT_TRUE(place.session->start_gather(group, landings[group]->addresses()));
        EXPECT_FALSE(place.session->start_gather(group, landings[group]->addresses()))
            << "a second one of the same group";
      }
      for (std::size_t i = 0; i < k_groups; ++i) {
        const std::size_t group = (i * 3 + static_cast<std::size_t>(step)) % k_groups;
        ASSERT_TRUE(place.session->wait_gather(group));
        place.expect_gathered(group, *landings[group]);
        EXPECT_FALSE(place.session->wait_gather(group)) << "nothing is under way";
      }
      ASSERT_TRUE(place.settle());
    }
  });
}

TEST_P(WorkerThreadsTest, landings_of_a_gather_that_nobody_waits_for_are_free_after_finish) {
  run_ranks({.backend = Backend::shm_threads, .world_size = 2}, [](const Rank& self) {
    Place place(self, one_large_group(), GetParam());
    for (int step = 0; step < 10; ++step) {
      ASSERT_TRUE(place.open(BracketKind::evaluation));
      auto landings = std::make_unique<Landings>(place.session->plan(), k_groups - 1);
      ASSERT_TRUE(place.session->start_gather(k_groups - 1, landings->addresses()));
      ASSERT_TRUE(place.session->finish(0, 0, 0));
      landings.reset();  // the sanitizers see a write that comes later
      ASSERT_TRUE(place.open(BracketKind::evaluation));
      EXPECT_FALSE(place.session->wait_gather(k_groups - 1)) << "it outlived its bracket";
      Landings again(place.session->plan(), k_groups - 1);
      ASSERT_TRUE(place.session->gather(k_groups - 1, again.addresses()));
      place.expect_gathered(k_groups - 1, again);
      ASSERT_TRUE(place.session->finish(0, 0, 0));
    }
  });
}

TEST_P(WorkerThreadsTest, tickets_count_from_one_and_say_which_sources_are_free) {
  run_ranks({.backend = Backend::shm_threads, .world_size = 2}, [](const Rank& self) {
    Place place(self, small_groups(), GetParam());
    ASSERT_TRUE(place.open());
    EXPECT_EQ(place.session->pushed(), 0U);
    for (std::uint64_t i = 1; i <= 10; ++i) {
      const auto ticket = place.push(i % k_groups);
      ASSERT_TRUE(ticket);
      EXPECT_EQ(*ticket, i);
      EXPECT_GE(place.session->pushed() + SessionConfig().pushes_in_flight, i);
    }
    ASSERT_TRUE(place.session->wait_pushed(7));
    EXPECT_GE(place.session->pushed(), 7U);
    EXPECT_FALSE(place.session->wait_pushed(11)) << "not given out";
    ASSERT_TRUE(place.session->finish(0, 0, 0));
    EXPECT_EQ(place.session->pushed(), 10U);
    ASSERT_TRUE(place.session->settle());
  });
}

INSTANTIATE_TEST_SUITE_P(Worker, WorkerThreadsTest, ::testing::Bool());

TEST(WorkerThreadsOnDemandTest, a_push_that_waits_does_not_delay_the_next_gather) {
  run_ranks({.backend = Backend::shm_threads, .world_size = 2}, [](const Rank& self) {
    Transport* transport = nullptr;
    Rank watched = self;
    watched.make = [&](const TransportConfig& config) {
      auto made = self.make(config);
      transport = made ? made->get() : nullptr;
      return made;
    };
    Place place(watched, small_groups(), /*worker_threads=*/true);
    const std::size_t pushed = k_groups - 1;
    ASSERT_TRUE(place.open());
    // A chunk of this rank's own accumulators is held: no push to it ends until it is free.
    std::byte* const words = transport->at(place.session->plan().lock_offset(pushed));
    ChunkLocks locks(reinterpret_cast<std::atomic<std::uint32_t>*>(words), self.rank);
    const Deadline deadline(k_patience);
    while (!locks.try_lock(0) && !deadline.passed()) {  // a peer that is ahead may be adding
      std::this_thread::yield();
    }
    const auto ticket = place.push(pushed);
    ASSERT_TRUE(ticket);
    Landings landings(place.session->plan(), 0);
    const Status gathered = place.session->gather(0, landings.addresses());
    const std::uint64_t done = place.session->pushed();
    locks.unlock(0);
    ASSERT_TRUE(gathered);
    place.expect_gathered(0, landings);
    EXPECT_LT(done, *ticket);
    ASSERT_TRUE(place.settle());
  });
}

TEST(WorkerThreadsOnDemandTest, time_that_workers_spend_under_the_callers_work_is_hidden) {
  run_ranks({.backend = Backend::shm_threads, .world_size = 2}, [](const Rank& self) {
    Place place(self, small_groups(), /*worker_threads=*/true);
    ASSERT_TRUE(place.open());
    const auto ticket = place.push(1);
    ASSERT_TRUE(ticket);
    const Deadline deadline(k_patience);
    while (place.session->pushed() < *ticket && !deadline.passed()) {
      std::this_thread::yield();  // the caller's own work: it never waits
    }
    const Counters hidden = place.session->counters();
    EXPECT_GT(hidden.hidden_ns, 0);
    EXPECT_EQ(hidden.worker_ns, hidden.hidden_ns);
    Landings landings(place.session->plan(), 0);
    ASSERT_TRUE(place.session->gather(0, landings.addresses()));  // the caller waits for it
    const Counters counters = place.session->counters();
    EXPECT_GT(counters.worker_ns, hidden.worker_ns);
    EXPECT_LE(counters.hidden_ns, counters.worker_ns);
    ASSERT_TRUE(place.settle());
    std::set<std::string> seen;
    for (const TraceEvent& event : place.session->drain_trace()) {
      seen.insert(std::string(event.name) + " on " + event.thread);
    }
    for (const char* expected :
         {"publish on caller", "gather on worker", "push on pusher", "settle on caller"}) {
      EXPECT_TRUE(seen.contains(expected)) << expected;
    }
  });
}

TEST(WorkerThreadsEndTest, close_does_not_wait_for_a_peer_that_a_worker_waits_for) {
  run_ranks({.backend = Backend::shm_threads, .world_size = 2}, [](const Rank& self) {
    Place place(self, small_groups(), /*worker_threads=*/true);
    if (self.rank == 0) {
      ASSERT_TRUE(place.open());
      Landings landings(place.session->plan(), 0);
      ASSERT_TRUE(place.session->start_gather(0, landings.addresses()));
      ASSERT_TRUE(place.push(0));
      const std::int64_t begin = now_ns();
      place.session->close();
      EXPECT_LT(now_ns() - begin, k_soon.count() * 1'000'000);
      return;
    }
    const Deadline deadline(k_patience);  // the peer's gather waits for this rank's shard meanwhile
    while (place.session->check() && !deadline.passed()) {
      std::this_thread::sleep_for(Milliseconds(1));
    }
    const Status status = place.open();
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("closed inside a bracket"), std::string::npos)
        << status.error().describe();
  });
}

TEST(WorkerThreadsEndTest, an_interrupted_wait_leaves_the_gather_under_way) {
  std::latch was_interrupted(1);
  run_ranks({.backend = Backend::shm_threads, .world_size = 2}, [&](const Rank& self) {
    SessionConfig config;
    config.worker_threads = true;
    bool interrupt = self.rank == 0;
    config.interrupted = [&interrupt] { return interrupt; };
    const ModelSpec model = small_groups();
    const auto values = integer_values(model, 9);
    const auto session = connect(self, model, config).value();
    const Shards shards(session->plan(), self.rank, values);
    Landings landings(session->plan(), 0);
    if (self.rank == 1) {
      was_interrupted.wait();
    }
    ASSERT_TRUE(session->open(BracketKind::evaluation, 0, 0, shards.sources()));
    if (self.rank == 0) {
      ASSERT_TRUE(session->start_gather(0, landings.addresses()));
      const Status interrupted = session->wait_gather(0);
      was_interrupted.count_down();
      ASSERT_FALSE(interrupted);
      EXPECT_EQ(interrupted.error().scope, Scope::operation);
      EXPECT_NE(interrupted.error().message.find("interrupted"), std::string::npos);
      interrupt = false;
      ASSERT_TRUE(session->wait_gather(0));
      EXPECT_EQ(landings.values(0), values[0][0]);
    }
    ASSERT_TRUE(session->finish(0, 0, 0));
    session->close();
  });
}

TEST(WorkerThreadsEndTest, a_peers_failure_is_returned_by_the_next_call_whatever_is_under_way) {
  run_ranks({.backend = Backend::shm_threads, .world_size = 2}, [](const Rank& self) {
    Place place(self, small_groups(), /*worker_threads=*/true);
    if (self.rank == 1) {
      place.session->fail("no more data");
      return;
    }
    const Status opened = place.open();
    Landings landings(place.session->plan(), 0);
    Status status = opened;
    if (opened) {
      status = place.session->start_gather(0, landings.addresses());
    }
    if (status) {
      status = place.session->wait_gather(0);
    }
    ASSERT_FALSE(status) << "rank 1 never published";
    EXPECT_EQ(status.error().rank, 1);
    EXPECT_NE(status.error().message.find("no more data"), std::string::npos);
    for (const Status& again :
         {place.session->wait_gather(0), place.session->start_gather(1, landings.addresses())}) {
      ASSERT_FALSE(again);
      EXPECT_NE(again.error().message.find("no more data"), std::string::npos);
    }
  });
}

TEST(WorkerThreadsEndTest, a_forked_child_has_no_workers_and_the_parent_keeps_them) {
  if (k_sanitized) {
    GTEST_SKIP() << "forks inside ranks; the release suite runs this";
  }
  run_ranks({.backend = Backend::shm_processes, .world_size = 2}, [](const Rank& self) {
    Place place(self, one_large_group(), /*worker_threads=*/true);
    ASSERT_TRUE(place.open());
    Landings landings(place.session->plan(), k_groups - 1);
    ASSERT_TRUE(place.session->start_gather(k_groups - 1, landings.addresses()));
    const auto ticket = place.push(k_groups - 1);
    ASSERT_TRUE(ticket);
    const pid_t child = ::fork();
    if (child == 0) {
      const bool refused = !place.session->wait_gather(k_groups - 1) &&
                           !place.session->wait_pushed(*ticket) && place.session->pushed() == 0 &&
                           place.session->drain_trace().empty();
      place.session.reset();  // must neither hang nor touch the parent's threads
      ::_exit(refused ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    ASSERT_TRUE(place.session->wait_gather(k_groups - 1));
    place.expect_gathered(k_groups - 1, landings);
    ASSERT_TRUE(place.settle());
    place.session->close();
  });
}

}  // namespace
}  // namespace headrace::testing
