#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "support/shared_words.h"

namespace headrace::testing {

/// Where the ranks of a test meet, threads or forked processes, outside of what is tested: no limit
/// of a transport ends it, and no rank shows that it waits. Made before the ranks.
class Rendezvous {
 public:
  explicit Rendezvous(int ranks)
      : ranks_(static_cast<std::uint64_t>(ranks)), arrivals_(shared_words(1)) {}

  /// Returns once every rank has come to this round; rounds count up from 1. Whoever waits for ever
  /// is ended with its group.
  void come(std::uint64_t round) const {
    const std::atomic_ref<std::uint64_t> arrivals(*arrivals_);
    arrivals.fetch_add(1);
    while (arrivals.load() < round * ranks_) {
      std::this_thread::sleep_for(Milliseconds(1));
    }
  }

 private:
  std::uint64_t ranks_;
  std::shared_ptr<std::uint64_t> arrivals_;
};

}  // namespace headrace::testing
