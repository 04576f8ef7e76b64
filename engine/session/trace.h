#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace headrace {

/// One operation of this rank, for a timeline.
struct TraceEvent {
  const char* name = "";  ///< publish, gather, push, finish, settle
  int group = -1;         ///< -1 where it concerns no group
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t waited_ns = 0;  ///< of it spent waiting for peers
  std::uint64_t bytes = 0;
};

/// The first events since the last drain, up to a bound; what does not fit is counted and dropped.
class Trace {
 public:
  explicit Trace(std::size_t capacity) : capacity_(capacity) {}

  void add(const TraceEvent& event) {
    if (events_.size() < capacity_) {
      events_.push_back(event);
    } else {
      ++dropped_;
    }
  }
  std::vector<TraceEvent> drain() { return std::exchange(events_, {}); }
  std::uint64_t dropped() const { return dropped_; }

 private:
  std::size_t capacity_;
  std::vector<TraceEvent> events_;
  std::uint64_t dropped_ = 0;
};

}  // namespace headrace
