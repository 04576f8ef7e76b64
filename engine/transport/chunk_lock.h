#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace headrace {

/// One lock word a chunk, in memory that ranks share: 0 is free, otherwise the holder's rank + 1,
/// so that a waiter can find out whether the holder still lives.
class ChunkLocks {
 public:
  ChunkLocks(std::atomic<std::uint32_t>* words, int rank)
      : words_(words), mine_(static_cast<std::uint32_t>(rank) + 1) {}

  bool try_lock(std::size_t chunk) {
    std::uint32_t free = 0;
    return words_[chunk].compare_exchange_strong(free, mine_, std::memory_order_acquire,
                                                 std::memory_order_relaxed);
  }
  void unlock(std::size_t chunk) { words_[chunk].store(0, std::memory_order_release); }
  /// The holder's rank, or -1 where the lock is free.
  int holder(std::size_t chunk) const {
    return static_cast<int>(words_[chunk].load(std::memory_order_acquire)) - 1;
  }

 private:
  std::atomic<std::uint32_t>* words_;
  std::uint32_t mine_;
};

}  // namespace headrace
