#pragma once

#include <memory>

#include "base/clock.h"
#include "base/result.h"

namespace headrace::testing {

/// Holds every multiprocessor of the current device, one block each with all of its shared memory,
/// from make to the end of the object: no other kernel of this process runs meanwhile. Kernels that
/// may be launched meanwhile must have run before, since loading one waits for the device. One
/// object at a time.
class TakenMultiprocessors {
 public:
  /// Returns once all blocks run. They end by themselves after `limit`.
  static Result<TakenMultiprocessors> make(Milliseconds limit);
  TakenMultiprocessors(TakenMultiprocessors&&) noexcept;
  ~TakenMultiprocessors();

  /// Whether all are still held.
  bool held() const;
  /// Whether a kernel of one thread on another stream was done within `limit`. It is done once the
  /// object has gone in any case.
  Result<bool> lets_a_kernel_through(Milliseconds limit) const;

 private:
  struct State;
  explicit TakenMultiprocessors(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace headrace::testing
