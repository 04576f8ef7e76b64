#include "runtime/waiter.h"

#include <fmt/format.h>
#include <sched.h>

#include <string>

namespace headrace {
namespace {

thread_local std::int64_t waited_here = 0;

}  // namespace

Error left_error(int peer, std::string_view what) {
  return peer_error(
      peer, fmt::format("rank {} left the session while this rank waited for its {}; did its "
                        "training loop end early?",
                        peer, what));
}

Error no_progress_error(const Liveness& liveness, int peer, std::string_view what,
                        Milliseconds no_progress) {
  const std::string late =
      fmt::format("no {} from rank {} for {:.1f} s (limit no_progress_seconds)", what, peer,
                  static_cast<double>(no_progress.count()) / 1e3);
  const int last = liveness.last_awaited(peer);
  if (last != peer) {
    return peer_error(last, fmt::format("{}, since it waits for others, and they for rank {}; that "
                                        "is alive, but does not get there",
                                        late, last));
  }
  return peer_error(peer, late + "; it is alive, but does not get there");
}

std::int64_t Waiter::waited_here_ns() { return waited_here; }

// Success: wait on. The condition is looked at again after the peer was seen to have left, since it
// may have been met just before.
Status Waiter::give_up(int peer, std::string_view what, Deadline deadline,
                       const std::function<bool()>& ready) const {
  HEADRACE_TRY(liveness_->check());
  liveness_->show_wait(peer);  // again, since the end of another thread's wait takes it back
  if (liveness_->has_left(peer) && !ready()) {
    return left_error(peer, what);
  }
  if (interrupted_ && interrupted_()) {
    return operation_error(fmt::format("interrupted while waiting for rank {}'s {}", peer, what));
  }
  if (deadline.passed()) {
    return no_progress_error(*liveness_, peer, what, config_.no_progress);
  }
  return {};
}

Status Waiter::until(Signal& signal, std::uint64_t at_least, int peer, std::string_view what) {
  const auto ready = [&] { return signal.value.load(std::memory_order_acquire) >= at_least; };
  if (ready()) {
    return {};
  }
  const std::int64_t begin = now_ns();
  liveness_->show_wait(peer);
  const Deadline deadline(config_.no_progress);
  Status status;
  for (int spin = 0; spin < config_.spins && !ready(); ++spin) {
    ::sched_yield();
  }
  while (!wait_for(signal, at_least, ready() ? Milliseconds(0) : config_.slice)) {
    status = give_up(peer, what, deadline, ready);
    if (!status) {
      break;
    }
  }
  waited_here += now_ns() - begin;
  if (status) {
    liveness_->show_no_wait();
  }
  return status;
}

Status Waiter::until(const std::function<bool()>& ready, int peer, std::string_view what) {
  if (ready()) {
    return {};
  }
  const std::int64_t begin = now_ns();
  liveness_->show_wait(peer);
  const Deadline deadline(config_.no_progress);
  Deadline look(config_.slice);
  Status status;
  while (!ready()) {
    if (look.passed()) {
      status = give_up(peer, what, deadline, ready);
      if (!status) {
        break;
      }
      look = Deadline(config_.slice);
    }
    ::sched_yield();
  }
  waited_here += now_ns() - begin;
  if (status) {
    liveness_->show_no_wait();
  }
  return status;
}

}  // namespace headrace
