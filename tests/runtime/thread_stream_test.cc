#include "runtime/thread_stream.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "support/sanitizers.h"

namespace headrace {
namespace {

const Milliseconds k_limit(60'000);

TEST(ThreadStreamTest, operations_run_in_order_on_another_thread) {
  ThreadStream stream;
  std::vector<int> order;
  std::thread::id thread;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(stream.enqueue([&, i]() -> Status {
      order.push_back(i);
      thread = std::this_thread::get_id();
      return {};
    }));
  }
  ASSERT_TRUE(stream.record().value().wait(Deadline(k_limit)));
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  }
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST(ThreadStreamTest, an_event_is_a_point_in_the_order) {
  ThreadStream stream;
  std::atomic<bool> open{false};
  Event before = stream.record().value();
  ASSERT_TRUE(stream.enqueue([&]() -> Status {
    while (!open) {
      std::this_thread::yield();
    }
    return {};
  }));
  Event after = stream.record().value();
  EXPECT_TRUE(before.done());
  EXPECT_FALSE(after.done());
  EXPECT_FALSE(after.wait(Deadline(Milliseconds(10))));
  open = true;
  EXPECT_TRUE(after.wait(Deadline(k_limit)));
  EXPECT_TRUE(after.done());
}

TEST(ThreadStreamTest, a_stream_waits_for_the_event_of_another) {
  ThreadStream first;
  ThreadStream second;
  std::atomic<int> value{0};
  ASSERT_TRUE(first.enqueue([&]() -> Status {
    std::this_thread::sleep_for(Milliseconds(20));
    value = 1;
    return {};
  }));
  ASSERT_TRUE(second.wait(first.record().value(), Deadline(k_limit)));
  int seen = -1;
  ASSERT_TRUE(second.enqueue([&]() -> Status {
    seen = value;
    return {};
  }));
  ASSERT_TRUE(second.record().value().wait(Deadline(k_limit)));
  EXPECT_EQ(seen, 1);
}

TEST(ThreadStreamTest, a_failure_ends_this_stream_and_those_that_wait_for_it) {
  int told = 0;
  ThreadStream first([&](const Error& error) { told = error.rank; });
  ThreadStream second;
  bool ran = false;
  ASSERT_TRUE(first.enqueue([]() -> Status { return peer_error(3, "rank 3 is gone"); }));
  ASSERT_TRUE(first.enqueue([&]() -> Status {
    ran = true;
    return {};
  }));
  ASSERT_TRUE(second.wait(first.record().value(), Deadline(k_limit)));
  const Status status = second.record().value().wait(Deadline(k_limit));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().rank, 3);
  EXPECT_FALSE(ran);
  EXPECT_EQ(told, 3);
}

TEST(ThreadStreamTest, a_forked_child_that_drops_it_ends) {
  if (testing::k_thread_sanitized) {
    GTEST_SKIP() << "the thread sanitizer cannot follow forked processes";
  }
  auto stream = std::make_unique<ThreadStream>();
  ASSERT_TRUE(stream->enqueue([]() -> Status { return {}; }));
  auto event = stream->record().value();
  ASSERT_TRUE(event.wait(Deadline(k_limit)));
  ::usleep(10'000);  // its thread waits for more
  const pid_t child = ::fork();
  if (child == 0) {
    event = Event();
    stream.reset();
    ::_exit(0);
  }
  int status = 0;
  const Deadline deadline(k_limit);
  while (::waitpid(child, &status, WNOHANG) == 0 && !deadline.passed()) {
    ::usleep(1'000);
  }
  if (deadline.passed()) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

TEST(ThreadStreamTest, an_event_outlives_its_stream) {
  Event event;
  {
    ThreadStream stream;
    ASSERT_TRUE(stream.enqueue([]() -> Status { return {}; }));
    event = stream.record().value();
    ASSERT_TRUE(event.wait(Deadline(k_limit)));
  }
  EXPECT_TRUE(event.done());
  EXPECT_TRUE(event.wait(Deadline(k_limit)));
}

}  // namespace
}  // namespace headrace
