#pragma once

#include <cstdint>

namespace headrace::replay {

/// Lets the calling thread wake from sleeps as exactly as the kernel can.
void ask_for_exact_sleeps();

/// The compute of one rank, emulated by sleeping to absolute times. Its own time runs behind real
/// time by what the last sleep overslept, at most, so that oversleeping does not add up: compute
/// that follows compute begins where that was to end.
class ComputeClock {
 public:
  ComputeClock();

  /// Sleeps until `ns` of compute have passed since where the clock stands.
  void compute(std::int64_t ns);
  /// Compute waited for communication that ran on this thread for so long, beginning where the
  /// clock stood.
  void spend(std::int64_t ns) { at_ += ns; }
  /// Compute waited for communication that ended elsewhere, just now: nothing before `at` counts.
  void advance_to(std::int64_t at);

  /// On the clock of now_ns().
  std::int64_t at() const { return at_; }
  /// All compute so far.
  std::int64_t computed() const { return computed_; }

 private:
  std::int64_t at_;
  std::int64_t computed_ = 0;
};

}  // namespace headrace::replay
