#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "runtime/liveness.h"
#include "runtime/signal.h"
#include "runtime/waiter.h"

namespace headrace {

/// Bounds the waits of streams for signals, which the device itself cannot end: a thread of this
/// process looks at them once a slice. When any rank has failed, when the peer waited for has left,
/// or when a wait makes no progress, it ends the session, and only then lets every stream pass, by
/// setting the awaited signals to a value above all others. What such streams still do is of no
/// use; whoever waits for their events gets the error.
class StreamMonitor {
 public:
  /// `liveness` must outlive the monitor.
  StreamMonitor(Liveness* liveness, WaitConfig config);
  /// Abandons what still waits.
  ~StreamMonitor();
  StreamMonitor(const StreamMonitor&) = delete;
  StreamMonitor& operator=(const StreamMonitor&) = delete;

  /// Above every value that a signal takes; compares as larger in the device's cyclic order too.
  static constexpr std::uint64_t k_released = std::uint64_t{1} << 62;

  /// Says, before the wait is enqueued, that `stream` will wait for `signal`. Waits of one stream
  /// come in its order. The signal lives as long as the monitor.
  void expect(const void* stream, Signal* signal, std::uint64_t at_least, int peer,
              std::string_view what);
  /// Takes the stream's last wait back: it could not be enqueued.
  void withdraw(const void* stream);
  /// Nobody wants what streams still wait for. Where there is any, it ends the session, so that
  /// peers do not take what such streams still do for results, and lets all streams pass.
  void abandon();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace headrace
