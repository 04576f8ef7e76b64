#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace headrace {

/// A 64-bit value that only grows, in memory that two processes share; its waiter sleeps in the
/// kernel. Whoever sees a value also sees all that its poster wrote before posting.
struct alignas(16) Signal {
  std::atomic<std::uint64_t> value;
  std::atomic<std::uint32_t> waiters;
  std::uint32_t unused;
};
static_assert(sizeof(Signal) == 16 && std::atomic<std::uint64_t>::is_always_lock_free);

/// Sets the value and wakes who waits for it. One poster a signal.
void post(Signal& signal, std::uint64_t value);

/// Returns once the value is at least `at_least` (true) or `limit` has passed (false).
bool wait_for(Signal& signal, std::uint64_t at_least, Milliseconds limit);

}  // namespace headrace
