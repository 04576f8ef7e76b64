#pragma once

#include <memory>

#include "base/clock.h"
#include "base/result.h"
#include "bench/cuda/work.h"

namespace headrace::bench {

struct Pace {
  double bytes_per_second = 50e9;  ///< of Load::bytes
  int most_outstanding = 8;        ///< units enqueued and not done; a device that falls behind is
                                   ///< given no more
  Milliseconds limit{10'000};      ///< longest wait for a unit
};

/// A load at a stated pace, on a stream of the transport's priority and a thread of its own, from
/// make to stop.
class PacedLoad {
 public:
  /// Returns once the first units are done.
  static Result<PacedLoad> make(const Load& load, const Pace& pace);
  ~PacedLoad();
  PacedLoad(PacedLoad&&) noexcept;

  /// Bytes a second since the first units were done.
  Result<double> stop();

 private:
  struct State;
  explicit PacedLoad(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace headrace::bench
