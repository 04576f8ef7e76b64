#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/arena.h"
#include "transport/bootstrap.h"

namespace headrace {

/// An exchange between ranks that are threads of this process. Reusable; every rank takes its own
/// `for_rank`, and all share this object, which must outlive them.
class ThreadExchange {
 public:
  explicit ThreadExchange(int world_size);
  Exchange for_rank(int rank);

 private:
  struct Round {
    std::vector<std::optional<std::string>> blobs;
  };
  Result<std::vector<std::string>> exchange(int rank, const std::string& mine, Milliseconds limit);

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Round> rounds_;
  std::vector<std::size_t> next_round_;  ///< by rank
};

/// An exchange between processes forked after it was made: one shared page a rank, for one round.
class ForkExchange {
 public:
  static Result<ForkExchange> make(int world_size);
  Exchange for_rank(int rank) const;

  static constexpr std::size_t k_slot_bytes = 4096;

 private:
  explicit ForkExchange(int world_size, std::shared_ptr<std::byte> slots)
      : world_size_(world_size), slots_(std::move(slots)) {}

  int world_size_;
  std::shared_ptr<std::byte> slots_;
};

}  // namespace headrace
