#include "runtime/signal.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <climits>
#include <ctime>

namespace headrace {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the futex word is the low half of the value");

std::uint32_t* futex_word(Signal& signal) {
  return reinterpret_cast<std::uint32_t*>(&signal.value);
}

}  // namespace

void post(Signal& signal, std::uint64_t value) {
  // Sequentially consistent on both sides: either the poster sees the waiter, or the waiter sees
  // the value.
  signal.value.store(value, std::memory_order_seq_cst);
  if (signal.waiters.load(std::memory_order_seq_cst) != 0) {
    ::syscall(SYS_futex, futex_word(signal), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

bool wait_for(Signal& signal, std::uint64_t at_least, Milliseconds limit) {
  const Deadline deadline(limit);
  signal.waiters.fetch_add(1, std::memory_order_seq_cst);
  std::uint64_t seen = signal.value.load(std::memory_order_seq_cst);
  while (seen < at_least && !deadline.passed()) {
    const auto left = deadline.left() + Milliseconds(1);
    const timespec timeout{.tv_sec = static_cast<time_t>(left.count() / 1000),
                           .tv_nsec = static_cast<long>(left.count() % 1000 * 1000000)};
    ::syscall(SYS_futex, futex_word(signal), FUTEX_WAIT, static_cast<std::uint32_t>(seen), &timeout,
              nullptr, 0);
    seen = signal.value.load(std::memory_order_seq_cst);
  }
  signal.waiters.fetch_sub(1, std::memory_order_seq_cst);
  return seen >= at_least;
}

}  // namespace headrace
