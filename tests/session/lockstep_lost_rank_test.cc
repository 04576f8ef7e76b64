// In lockstep a rank that dies, stops or leaves is named on every other rank, in time.

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>

#include "session/lockstep_seat.h"
#include "support/memory_that_kills.h"
#include "support/rendezvous.h"
#include "support/sanitizers.h"
#include "support/shared_words.h"

namespace headrace::testing {
namespace {

constexpr Milliseconds k_silence{3000};
constexpr Milliseconds k_no_progress{1000};

class LockstepKilledRankTest : public ::testing::TestWithParam<World> {
 protected:
  void SetUp() override {
    if (k_sanitized) {
      GTEST_SKIP()
          << "sanitizers take the signals that these tests die by; the release suite runs them";
    }
  }

  static void expect(const std::function<void(Seat&)>& last_words) {
    PeerGroup group{.backend = Backend::shm_processes, .world_size = GetParam().ranks};
    group.expected_to_die = {k_victim};
    const std::shared_ptr<std::uint64_t> died = shared_words(1);
    run_ranks(group, [&](const Rank& self) {
      Seat seat(self, GetParam(), model_of(k_many_rows));
      if (self.rank == k_victim) {
        ASSERT_TRUE(seat.step());
        ASSERT_TRUE(seat.step());
        death_note = died.get();
        last_words(seat);
        FAIL() << "the victim lives";
      }
      expect_named(seat, "rank 1 died", k_soon, died.get());
    });
  }
};

TEST_P(LockstepKilledRankTest, between_calls) {
  expect([](Seat& seat) {
    ASSERT_TRUE(seat.all_gather(0));
    die();
  });
}

TEST_P(LockstepKilledRankTest, inside_all_gather) {
  expect([](Seat& seat) { (void)seat.all_gather_into(0, memory_that_kills()); });
}

TEST_P(LockstepKilledRankTest, inside_all_gather_of_adopted_shards) {
  expect([](Seat& seat) {
    ASSERT_TRUE(seat.all_gather(0));
    (void)seat.all_gather_into(1, memory_that_kills());
  });
}

TEST_P(LockstepKilledRankTest, inside_reduce_scatter_where_it_reads_gradients) {
  expect([](Seat& seat) {
    ASSERT_TRUE(seat.all_gather(0));
    ASSERT_TRUE(seat.all_gather(1));
    (void)seat.reduce_from(1, memory_that_kills());
  });
}

TEST_P(LockstepKilledRankTest, inside_reduce_scatter_where_it_writes_the_sum) {
  expect([](Seat& seat) {
    ASSERT_TRUE(seat.all_gather(0));
    ASSERT_TRUE(seat.all_gather(1));
    (void)seat.reduce_into(1, memory_that_kills());
  });
}

TEST_P(LockstepKilledRankTest, while_it_waits_inside_a_call) {
  expect([](Seat& seat) {
    std::thread([] {
      std::this_thread::sleep_for(Milliseconds(50));
      die();
    }).detach();
    for (;;) {
      ASSERT_TRUE(seat.step());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, LockstepKilledRankTest, ::testing::ValuesIn(k_worlds), world_name);

// -- a rank that stops, or leaves

TEST(LockstepStoppedRankTest, is_named_after_the_silence_limit_and_not_before) {
  if (k_sanitized) {
    GTEST_SKIP() << "timing under a sanitizer says nothing; the release suite runs this";
  }
  PeerGroup group{.backend = Backend::shm_processes, .world_size = 3};
  group.expected_to_stop = {k_victim};
  group.liveness.silence = k_silence;
  run_ranks(group, [](const Rank& self) {
    Seat seat(self, {3, 3}, model_of(k_few_rows));
    const std::int64_t begin = now_ns();  // before the victim stops: it needs all for a step
    if (self.rank == k_victim) {
      ASSERT_TRUE(seat.step());
      ::raise(SIGSTOP);
      return;
    }
    expect_named(seat, "silent", k_silence + k_soon);
    // The victim's last heartbeat is older than its stop, much older on a busy machine.
    EXPECT_GE(std::chrono::nanoseconds(now_ns() - begin), k_silence / 2);
  });
}

class LockstepLaggardTest : public ::testing::TestWithParam<World> {
 protected:
  /// All ranks but the victim step on; it makes `calls` in their place.
  static void expect(const std::string& words, const std::function<void(Seat&)>& calls) {
    for (const Backend backend : backends()) {
      run_ranks({.backend = backend, .world_size = GetParam().ranks}, [&](const Rank& self) {
        Seat seat(self, GetParam(), model_of(k_few_rows));
        if (self.rank == k_victim) {
          ASSERT_TRUE(seat.step());
          calls(seat);
        } else {
          expect_named(seat, words);
        }
      });
    }
  }
};

TEST_P(LockstepLaggardTest, that_leaves_early_is_named) {
  expect("left", [](Seat& seat) { seat.session().close(); });
}

TEST_P(LockstepLaggardTest, that_makes_one_call_fewer_and_leaves_is_named) {
  expect("left", [](Seat& seat) {
    ASSERT_TRUE(seat.all_gather(0));
    ASSERT_TRUE(seat.all_gather(1));
    ASSERT_TRUE(seat.reduce_scatter(1));
    ASSERT_TRUE(seat.all_gather(0));
    seat.session().close();
  });
}

TEST_P(LockstepLaggardTest, whose_session_goes_without_being_closed_is_named) {
  expect("left", [](Seat& seat) { ASSERT_TRUE(seat.all_gather(0)); });
}

TEST_P(LockstepLaggardTest, that_fails_by_itself_is_named_with_its_reason) {
  expect("no more data", [](Seat& seat) { seat.session().fail("no more data"); });
}

TEST_P(LockstepLaggardTest, that_lives_but_does_not_call_is_named_after_the_progress_limit) {
  // Nothing has to come within the limit but survivors to their first wait, by which they show that
  // they wait themselves.
  PeerGroup group{.backend = backends().back(), .world_size = GetParam().ranks};
  group.wait.no_progress = k_no_progress;
  const Rendezvous all(group.world_size);
  run_ranks(group, [&all](const Rank& self) {
    Seat seat(self, GetParam(), model_of(k_few_rows));
    all.come(1);
    if (self.rank != k_victim) {
      expect_named(seat, "no_progress_seconds", k_no_progress + k_soon);
      return;
    }
    const Deadline deadline(k_patience);
    while (seat.session().check() && !deadline.passed()) {
      std::this_thread::sleep_for(Milliseconds(10));
    }
    EXPECT_FALSE(seat.session().check()) << "nobody told the rank that it is missed";
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, LockstepLaggardTest, ::testing::ValuesIn(k_worlds), world_name);

}  // namespace
}  // namespace headrace::testing
