#pragma once

#include <cstddef>

#include "runtime/waiter.h"
#include "transport/channel.h"

namespace headrace {

/// A channel to a peer whose symmetric memory this process has mapped: every operation is a load or
/// store by the calling rank, and a chunk of accumulators is locked by a word that carries the
/// holder's rank.
class MappedChannel final : public Channel {
 public:
  /// All pointers must outlive the channel. `peer_memory` may be `own_memory`.
  MappedChannel(int rank, int peer, std::byte* own_memory, std::byte* peer_memory,
                const Liveness* liveness, Waiter* waiter)
      : rank_(rank),
        peer_(peer),
        own_memory_(own_memory),
        peer_memory_(peer_memory),
        liveness_(liveness),
        waiter_(waiter) {}

  int peer() const override { return peer_; }
  const std::byte* view(std::size_t offset) const override { return peer_memory_ + offset; }
  Status get(Stream& stream, std::span<const Piece> pieces) override;
  Status put(Stream& stream, std::span<const Piece> pieces) override;
  Status accumulate(Stream& stream, const AccumulatorRegion& region,
                    std::span<const Addend> addends) override;
  Status signal(Stream& stream, std::size_t remote_offset, std::uint64_t value) override;
  Status wait(Stream& stream, std::size_t local_offset, std::uint64_t at_least,
              std::string_view what) override;
  Status flush(Stream& stream) override;

 private:
  int rank_;
  int peer_;
  std::byte* own_memory_;
  std::byte* peer_memory_;
  const Liveness* liveness_;
  Waiter* waiter_;
};

}  // namespace headrace
