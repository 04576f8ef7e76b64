#include "runtime/signal.h"

#include <gtest/gtest.h>

#include <thread>

namespace headrace {
namespace {

TEST(SignalTest, a_waiter_sees_the_value_and_what_was_written_before_it) {
  Signal signal{};
  int written = 0;
  std::thread poster([&] {
    for (int i = 1; i <= 1000; ++i) {
      written = i;
      post(signal, static_cast<std::uint64_t>(i));
      while (signal.waiters.load() == 0 && i % 100 == 0) {
        std::this_thread::yield();
      }
    }
  });
  ASSERT_TRUE(wait_for(signal, 1000, Milliseconds(20'000)));
  EXPECT_EQ(written, 1000);
  // The poster pauses for a waiter at every hundredth value: be one until it is done.
  signal.waiters.fetch_add(1);
  poster.join();
}

TEST(SignalTest, a_wait_ends_at_its_limit_and_not_before) {
  Signal signal{};
  post(signal, 3);
  EXPECT_TRUE(wait_for(signal, 3, Milliseconds(0)));
  const auto begin = Clock::now();
  EXPECT_FALSE(wait_for(signal, 4, Milliseconds(50)));
  EXPECT_GE(Clock::now() - begin, Milliseconds(50));
  EXPECT_EQ(signal.waiters.load(), 0U);
}

TEST(SignalTest, a_value_past_32_bits_is_compared_whole) {
  Signal signal{};
  post(signal, std::uint64_t{1} << 33);
  EXPECT_TRUE(wait_for(signal, (std::uint64_t{1} << 32) + 5, Milliseconds(0)));
  EXPECT_FALSE(wait_for(signal, (std::uint64_t{1} << 33) + 1, Milliseconds(5)));
}

}  // namespace
}  // namespace headrace
