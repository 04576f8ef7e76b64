#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace headrace {

/// One operation of this rank, for a timeline.
struct TraceEvent {
  const char* name = "";          ///< publish, gather, push, finish, settle, ...
  const char* thread = "caller";  ///< caller, or one of the session's own: worker, pusher
  int group = -1;                 ///< -1 where it concerns no group
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t waited_ns = 0;  ///< of it spent waiting for peers or, in a `wait`, for a worker
  std::uint64_t bytes = 0;
};

/// The first events since the last drain, up to a bound; what does not fit is counted and dropped.
/// Any thread may add.
class Trace {
 public:
  explicit Trace(std::size_t capacity) : capacity_(capacity) {}

  void add(const TraceEvent& event) {
    const std::lock_guard lock(mutex_);
    if (events_.size() < capacity_) {
      events_.push_back(event);
    } else {
      dropped_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  std::vector<TraceEvent> drain() {
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }
  std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  std::size_t capacity_;
  std::mutex mutex_;
  std::vector<TraceEvent> events_;
  std::atomic<std::uint64_t> dropped_ = 0;
};

}  // namespace headrace
