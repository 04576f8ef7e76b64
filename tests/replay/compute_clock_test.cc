#include "replay/compute_clock.h"

#include <gtest/gtest.h>

#include "base/clock.h"

namespace headrace::replay {
namespace {

constexpr std::int64_t k_ms = 1'000'000;

TEST(ComputeClock, oversleeping_does_not_add_up) {
  ComputeClock clock;
  const std::int64_t begin = clock.at();
  for (int i = 0; i < 20; ++i) {
    clock.compute(k_ms);
    EXPECT_GE(now_ns(), clock.at());  // never early
  }
  EXPECT_EQ(clock.at(), begin + 20 * k_ms);  // however late each wake-up was
  EXPECT_EQ(clock.computed(), 20 * k_ms);
}

TEST(ComputeClock, communication_moves_the_next_compute_but_is_none) {
  ComputeClock clock;
  const std::int64_t begin = clock.at();
  clock.spend(2 * k_ms);
  EXPECT_EQ(clock.at(), begin + 2 * k_ms);
  clock.advance_to(begin + k_ms);  // over before compute asked for it
  EXPECT_EQ(clock.at(), begin + 2 * k_ms);
  clock.advance_to(begin + 3 * k_ms);
  EXPECT_EQ(clock.at(), begin + 3 * k_ms);
  EXPECT_EQ(clock.computed(), 0);
}

}  // namespace
}  // namespace headrace::replay
