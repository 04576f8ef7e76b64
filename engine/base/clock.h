#pragma once

#include <chrono>
#include <cstdint>

namespace headrace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

/// Monotonic time in nanoseconds, on the clock that Python's time.monotonic_ns reads on Linux.
inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

/// A point in time that a wait may not pass.
class Deadline {
 public:
  explicit Deadline(Milliseconds from_now) : at_(Clock::now() + from_now) {}

  bool passed() const { return Clock::now() >= at_; }
  /// Time left, never negative.
  Milliseconds left() const {
    const auto left = std::chrono::duration_cast<Milliseconds>(at_ - Clock::now());
    return left.count() > 0 ? left : Milliseconds(0);
  }

 private:
  Clock::time_point at_;
};

}  // namespace headrace
