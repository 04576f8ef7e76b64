#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "runtime/liveness.h"
#include "runtime/signal.h"

namespace headrace {

struct WaitConfig {
  int spins = 200;                      ///< polls before sleeping
  Milliseconds slice{20};               ///< sleep between two looks at liveness and interrupts
  Milliseconds no_progress{1'800'000};  ///< longest single wait
};

/// What a wait for `peer` ends with when that has left, and when `no_progress` has passed: the
/// error names the rank that all wait for in the end, by Liveness::last_awaited.
Error left_error(int peer, std::string_view what);
Error no_progress_error(const Liveness& liveness, int peer, std::string_view what,
                        Milliseconds no_progress);

/// The one place where a rank waits for another; several threads may. Every wait ends: with the
/// value, or with an error that names the peer and what was waited for, when any rank fails, when
/// this peer has left, when the caller is interrupted, or after `no_progress`.
class Waiter {
 public:
  /// `interrupted` is asked once a slice; true ends the wait with an operation error. May be empty.
  Waiter(Liveness* liveness, WaitConfig config, std::function<bool()> interrupted)
      : liveness_(liveness), config_(config), interrupted_(std::move(interrupted)) {}

  Status until(Signal& signal, std::uint64_t at_least, int peer, std::string_view what);

  /// The same rules for any condition that cannot wake a sleeper: `ready` is polled, yielding in
  /// between.
  Status until(const std::function<bool()>& ready, int peer, std::string_view what);

  /// Nanoseconds that the calling thread has spent in waits, of all waiters.
  static std::int64_t waited_here_ns();

 private:
  Status give_up(int peer, std::string_view what, Deadline deadline,
                 const std::function<bool()>& ready) const;

  Liveness* liveness_;
  WaitConfig config_;
  std::function<bool()> interrupted_;
};

}  // namespace headrace
