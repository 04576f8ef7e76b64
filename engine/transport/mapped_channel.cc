#include "transport/mapped_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernel/accumulate.h"
#include "kernel/copy.h"
#include "transport/chunk_lock.h"

namespace headrace {
namespace {

// Adds what of the sorted addends lies in bytes [begin, end) of the peer's memory.
void add_chunk(std::byte* peer_memory, std::span<const Addend> addends, std::size_t begin,
               std::size_t end) {
  const auto ends_before = [](const Addend& addend, std::size_t at) {
    return addend.remote_offset + addend.count * sizeof(float) <= at;
  };
  auto addend = std::lower_bound(addends.begin(), addends.end(), begin, ends_before);
  for (; addend != addends.end() && addend->remote_offset < end; ++addend) {
    const std::size_t from = std::max(addend->remote_offset, begin);
    const std::size_t to = std::min(addend->remote_offset + addend->count * sizeof(float), end);
    const std::size_t skipped = (from - addend->remote_offset) / sizeof(float);
    accumulate(reinterpret_cast<float*>(peer_memory + from),
               static_cast<const std::byte*>(addend->local) + skipped * item_size(addend->dtype),
               addend->dtype, (to - from) / sizeof(float));
  }
}

// The golden ratio spreads any number of ranks evenly over the chunks.
std::size_t first_chunk(int rank, std::size_t chunks) {
  constexpr double k_golden_ratio = 0.6180339887498949;
  const double turns = k_golden_ratio * rank;
  return static_cast<std::size_t>((turns - std::floor(turns)) * static_cast<double>(chunks)) %
         chunks;
}

}  // namespace

Status MappedChannel::get(Stream& stream, std::span<const Piece> pieces) {
  HEADRACE_TRY(liveness_->check());
  return stream.enqueue([this, copies = std::vector(pieces.begin(), pieces.end())]() -> Status {
    for (const Piece& piece : copies) {
      copy_streaming(piece.local, peer_memory_ + piece.remote_offset, piece.bytes);
    }
    return {};
  });
}

Status MappedChannel::put(Stream& stream, std::span<const Piece> pieces) {
  HEADRACE_TRY(liveness_->check());
  return stream.enqueue([this, copies = std::vector(pieces.begin(), pieces.end())]() -> Status {
    for (const Piece& piece : copies) {
      copy_streaming(peer_memory_ + piece.remote_offset, piece.local, piece.bytes);
    }
    return {};
  });
}

Status MappedChannel::accumulate(Stream& stream, const AccumulatorRegion& region,
                                 std::span<const Addend> addends) {
  HEADRACE_TRY(liveness_->check());
  if (addends.empty()) {
    return {};
  }
  return stream.enqueue([this, region,
                         sorted = std::vector(addends.begin(), addends.end())]() -> Status {
    if (region.exclusive) {
      add_chunk(peer_memory_, sorted, region.offset, region.offset + region.bytes);
      return {};
    }
    ChunkLocks locks(
        reinterpret_cast<std::atomic<std::uint32_t>*>(peer_memory_ + region.locks_offset), rank_);
    const std::size_t first = (sorted.front().remote_offset - region.offset) / region.chunk_bytes;
    const std::size_t last =
        (sorted.back().remote_offset +
         std::max<std::size_t>(sorted.back().count, 1) * sizeof(float) - 1 - region.offset) /
        region.chunk_bytes;
    // Ranks start far apart, and come back later to a chunk that another rank holds.
    const std::size_t chunks = last - first + 1;
    const std::size_t start = first_chunk(rank_, chunks);
    std::vector<std::size_t> pending;
    pending.reserve(chunks);
    for (std::size_t i = 0; i < chunks; ++i) {
      pending.push_back(first + (start + i) % chunks);
    }
    while (!pending.empty()) {
      const auto busy = std::remove_if(pending.begin(), pending.end(), [&](std::size_t chunk) {
        if (!locks.try_lock(chunk)) {
          return false;
        }
        const std::size_t begin = region.offset + chunk * region.chunk_bytes;
        add_chunk(peer_memory_, sorted, begin,
                  std::min(begin + region.chunk_bytes, region.offset + region.bytes));
        locks.unlock(chunk);
        return true;
      });
      pending.erase(busy, pending.end());
      if (!pending.empty()) {
        const std::size_t chunk = pending.front();
        const int holder = locks.holder(chunk);
        HEADRACE_TRY(waiter_->until([&] { return locks.holder(chunk) < 0; },
                                    holder < 0 ? peer_ : holder, "lock of an accumulator chunk"));
      }
    }
    return {};
  });
}

Status MappedChannel::signal(Stream& stream, std::size_t remote_offset, std::uint64_t value) {
  HEADRACE_TRY(liveness_->check());
  return stream.enqueue([this, remote_offset, value]() -> Status {
    post(*reinterpret_cast<Signal*>(peer_memory_ + remote_offset), value);
    return {};
  });
}

Status MappedChannel::wait(Stream& stream, std::size_t local_offset, std::uint64_t at_least,
                           std::string_view what) {
  return stream.enqueue([this, local_offset, at_least, what = std::string(what)]() -> Status {
    return waiter_->until(*reinterpret_cast<Signal*>(own_memory_ + local_offset), at_least, peer_,
                          what);
  });
}

Status MappedChannel::flush(Stream&) { return liveness_->check(); }

}  // namespace headrace
