#include "transport/exchange.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "runtime/signal.h"

namespace headrace {
namespace {

Error missing(int rank, Milliseconds limit) {
  return session_error(
      fmt::format("rank {} did not arrive at wiring within {:.1f} s (limit bootstrap_seconds)",
                  rank, static_cast<double>(limit.count()) / 1e3));
}

struct Slot {
  Signal written;
  std::uint64_t size;
  char bytes[ForkExchange::k_slot_bytes - sizeof(Signal) - sizeof(std::uint64_t) - 8];
};
static_assert(sizeof(Slot) == ForkExchange::k_slot_bytes);

}  // namespace

ThreadExchange::ThreadExchange(int world_size)
    : next_round_(static_cast<std::size_t>(world_size)) {}

Exchange ThreadExchange::for_rank(int rank) {
  return [this, rank](const std::string& mine, Milliseconds limit) {
    return exchange(rank, mine, limit);
  };
}

Result<std::vector<std::string>> ThreadExchange::exchange(int rank, const std::string& mine,
                                                          Milliseconds limit) {
  std::unique_lock lock(mutex_);
  const std::size_t number = next_round_[static_cast<std::size_t>(rank)]++;
  if (rounds_.size() <= number) {
    rounds_.resize(number + 1);
  }
  if (rounds_[number].blobs.empty()) {
    rounds_[number].blobs.resize(next_round_.size());
  }
  rounds_[number].blobs[static_cast<std::size_t>(rank)] = mine;
  arrived_.notify_all();
  const auto absent = [&] {
    const auto& blobs = rounds_[number].blobs;
    return std::find(blobs.begin(), blobs.end(), std::nullopt);
  };
  if (!arrived_.wait_for(lock, limit, [&] { return absent() == rounds_[number].blobs.end(); })) {
    return missing(static_cast<int>(absent() - rounds_[number].blobs.begin()), limit);
  }
  std::vector<std::string> all;
  for (const auto& blob : rounds_[number].blobs) {
    all.push_back(*blob);
  }
  return all;
}

Result<ForkExchange> ForkExchange::make(int world_size) {
  const std::size_t bytes = static_cast<std::size_t>(world_size) * sizeof(Slot);
  void* slots = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (slots == MAP_FAILED) {
    return system_error(Scope::session, "cannot map the page that forked ranks meet on");
  }
  return ForkExchange(world_size, std::shared_ptr<std::byte>(
                                      static_cast<std::byte*>(slots),
                                      [bytes](std::byte* pages) { ::munmap(pages, bytes); }));
}

Exchange ForkExchange::for_rank(int rank) const {
  return [world_size = world_size_, slots = slots_, rank](
             const std::string& mine, Milliseconds limit) -> Result<std::vector<std::string>> {
    Slot* slot = reinterpret_cast<Slot*>(slots.get());
    if (mine.size() > sizeof slot->bytes) {
      return session_error(fmt::format("a blob of {} bytes does not fit the {} of an exchange slot",
                                       mine.size(), sizeof slot->bytes));
    }
    Slot& own = slot[rank];
    std::memcpy(own.bytes, mine.data(), mine.size());
    own.size = mine.size();
    post(own.written, 1);
    const Deadline deadline(limit);
    std::vector<std::string> all;
    for (int peer = 0; peer < world_size; ++peer) {
      if (!wait_for(slot[peer].written, 1, deadline.left())) {
        return missing(peer, limit);
      }
      all.emplace_back(slot[peer].bytes, slot[peer].size);
    }
    return all;
  };
}

}  // namespace headrace
