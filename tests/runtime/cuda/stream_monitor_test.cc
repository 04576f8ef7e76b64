// Waits of streams, without a device: what the monitor does to the signals, and whom it tells.

#include "runtime/cuda/stream_monitor.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace headrace::testing {
namespace {

constexpr Milliseconds k_limit{60'000};  // for what comes on any machine

bool comes(const std::function<bool()>& condition, Milliseconds limit = k_limit) {
  const Deadline deadline(limit);
  while (!condition()) {
    if (deadline.passed()) {
      return false;
    }
    ::usleep(1'000);
  }
  return true;
}

/// A rank 0 whose peers, 1 and 2, are pages that the test writes.
class StreamMonitorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<LivenessPeer> peers;
    for (const int rank : {1, 2}) {
      page(rank).state = LivenessPage::running;
      peers.push_back({.rank = rank, .page = &page(rank), .death = Fd()});
    }
    auto liveness = Liveness::start(0, &page(0), std::move(peers), {.interval = Milliseconds(5)});
    ASSERT_TRUE(liveness);
    liveness_ = std::move(liveness).value();
    start(WaitConfig{}.no_progress);
  }

  void start(Milliseconds no_progress) {
    monitor_.reset();
    monitor_ = std::make_unique<StreamMonitor>(
        liveness_.get(), WaitConfig{.slice = Milliseconds(1), .no_progress = no_progress});
  }

  LivenessPage& page(int rank) { return pages_[rank]; }
  bool failed_here() { return page(0).state == LivenessPage::failed; }
  void expect(int stream, Signal& signal, std::uint64_t at_least, int peer = 1) {
    monitor_->expect(&streams_[stream], &signal, at_least, peer, "greeting");
  }
  static bool released(const Signal& signal) { return signal.value == StreamMonitor::k_released; }

  LivenessPage pages_[3] = {};
  int streams_[2] = {};
  Signal first_ = {};
  Signal second_ = {};
  std::unique_ptr<Liveness> liveness_;
  std::unique_ptr<StreamMonitor> monitor_;
};

TEST_F(StreamMonitorTest, a_signal_that_a_peer_sets_after_its_release_is_released_again) {
  expect(0, first_, 2);
  expect(0, second_, 1, 2);
  liveness_->fail(peer_error(2, "rank 2 is to blame"));
  ASSERT_TRUE(comes([&] { return released(first_) && released(second_); }));
  for (int i = 0; i < 3; ++i) {
    first_.value = 1;  // less than the device waits for, which it may not have come to yet
    ASSERT_TRUE(comes([&] { return released(first_); })) << "time " << i;
  }
}

TEST_F(StreamMonitorTest, what_nobody_wants_any_more_ends_the_session_before_it_is_released) {
  expect(0, first_, 1, 2);
  ASSERT_TRUE(liveness_->check());
  monitor_->abandon();
  EXPECT_TRUE(failed_here()) << "peers must not take what the stream still does for a result";
  EXPECT_EQ(page(0).culprit, 0);
  EXPECT_NE(std::string(page(0).reason).find("greeting of rank 2"), std::string::npos)
      << page(0).reason;
  EXPECT_TRUE(released(first_));
}

TEST_F(StreamMonitorTest, its_end_abandons_what_still_waits) {
  expect(0, first_, 1);
  monitor_.reset();
  EXPECT_TRUE(failed_here());
  EXPECT_TRUE(released(first_));
}

TEST_F(StreamMonitorTest, its_end_is_nobodys_failure_where_nothing_waits) {
  expect(0, first_, 1);
  expect(0, second_, 7, 2);
  expect(1, second_, 8, 2);
  first_.value = 3;
  second_.value = 8;
  monitor_->abandon();
  monitor_.reset();
  EXPECT_FALSE(failed_here());
  EXPECT_EQ(first_.value, 3U);
  EXPECT_EQ(second_.value, 8U);
}

TEST_F(StreamMonitorTest, a_wait_taken_back_bounds_nothing) {
  start(Milliseconds(500));
  expect(0, first_, 1);
  monitor_->withdraw(&streams_[0]);
  monitor_->withdraw(&streams_[1]);  // had none
  EXPECT_FALSE(comes([&] { return !liveness_->check(); }, Milliseconds(700)));
}

TEST_F(StreamMonitorTest, a_wait_behind_others_of_its_stream_has_its_own_time) {
  constexpr Milliseconds k_no_progress{2000};
  start(k_no_progress);
  expect(0, first_, 1);
  expect(0, second_, 1, 2);
  ::usleep(700'000);
  const auto begin = Clock::now();
  first_.value = 1;
  ASSERT_TRUE(comes([&] { return !liveness_->check(); }));
  EXPECT_GE(Clock::now() - begin, k_no_progress) << "it counted from when it was expected";
  EXPECT_EQ(liveness_->check().error().rank, 2);
  EXPECT_TRUE(released(second_));
}

TEST_F(StreamMonitorTest, peers_see_whom_a_stream_waits_for) {
  expect(0, first_, 1, 2);
  ASSERT_TRUE(comes([&] { return page(0).awaited == 1 + 2; }));
  first_.value = 1;
  ASSERT_TRUE(comes([&] { return page(0).awaited == 0; }));
}

TEST_F(StreamMonitorTest, a_limit_names_the_rank_that_all_wait_for) {
  start(Milliseconds(50));
  page(1).awaited = 1 + 2;
  expect(0, first_, 1, 1);
  ASSERT_TRUE(comes([&] { return !liveness_->check(); }));
  EXPECT_EQ(liveness_->check().error().rank, 2) << liveness_->check().error().message;
}

TEST_F(StreamMonitorTest, a_peer_that_left_is_named_unless_it_signalled_first) {
  expect(0, second_, 1, 2);
  second_.value = 1;
  page(2).state = LivenessPage::left;
  EXPECT_FALSE(comes([&] { return !liveness_->check(); }, Milliseconds(100)));
  expect(1, first_, 1, 2);
  ASSERT_TRUE(comes([&] { return !liveness_->check(); }));
  EXPECT_EQ(liveness_->check().error().rank, 2);
}

TEST_F(StreamMonitorTest, a_forked_child_drops_it_at_once_and_touches_nothing) {
  expect(0, first_, 1);
  const pid_t child = ::fork();
  if (child == 0) {
    monitor_.reset();
    ::_exit(failed_here() || released(first_) ? 1 : 0);
  }
  int status = 0;
  const bool ended = comes([&] { return ::waitpid(child, &status, WNOHANG) == child; });
  if (!ended) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
  }
  ASSERT_TRUE(ended) << "it waits for a thread that the child does not have";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE(liveness_->check());
}

}  // namespace
}  // namespace headrace::testing
