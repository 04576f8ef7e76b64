#include "replay/compute_clock.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "base/clock.h"

namespace headrace::replay {

void ask_for_exact_sleeps() {
  ::prctl(PR_SET_TIMERSLACK, 1UL);  // nanoseconds
}

ComputeClock::ComputeClock() : at_(now_ns()) {}

void ComputeClock::compute(std::int64_t ns) {
  constexpr std::int64_t k_second = 1'000'000'000;
  at_ += ns;
  computed_ += ns;
  const timespec until{.tv_sec = at_ / k_second, .tv_nsec = at_ % k_second};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

void ComputeClock::advance_to(std::int64_t at) { at_ = std::max(at_, at); }

}  // namespace headrace::replay
