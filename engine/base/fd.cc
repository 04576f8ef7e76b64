#include "base/fd.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>

namespace headrace {
namespace {

// A fork handler takes no argument, so this table is the one piece of process-wide state: which
// descriptor numbers belong to the engine. A bit a descriptor; numbers past the table are not
// closed in children.
constexpr int k_tracked_descriptors = 1 << 16;
std::array<std::atomic<bool>, k_tracked_descriptors> tracked{};

void close_in_child() {
  for (int fd = 0; fd < k_tracked_descriptors; ++fd) {
    if (tracked[static_cast<std::size_t>(fd)].exchange(false, std::memory_order_relaxed)) {
      ::close(fd);
    }
  }
}

void track(int fd, bool on) {
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, &close_in_child);
  if (fd >= 0 && fd < k_tracked_descriptors) {
    tracked[static_cast<std::size_t>(fd)].store(on, std::memory_order_relaxed);
  }
}

bool is_tracked(int fd) {
  return fd >= k_tracked_descriptors || tracked[static_cast<std::size_t>(fd)].load();
}

}  // namespace

Fd::Fd(int fd) : fd_(fd) { track(fd, true); }

void Fd::reset() {
  if (fd_ < 0) {
    return;
  }
  // In a forked child the number is no longer ours: it was closed there and may have been reused.
  if (is_tracked(fd_)) {
    track(fd_, false);
    ::close(fd_);
  }
  fd_ = -1;
}

}  // namespace headrace
