#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/dtype.h"
#include "base/result.h"
#include "runtime/stream.h"

namespace headrace {

/// Bytes between local memory and a place in the peer's symmetric memory.
struct Piece {
  std::size_t remote_offset = 0;
  void* local = nullptr;
  std::size_t bytes = 0;
};

/// Elements to add to fp32 values in the peer's symmetric memory.
struct Addend {
  std::size_t remote_offset = 0;  ///< of the first fp32 element; 4-byte aligned
  const void* local = nullptr;
  DType dtype = DType::float32;
  std::size_t count = 0;
};

/// The peer's accumulators of one group to which a source adds: [offset, offset + bytes), one
/// 32-bit lock word for every `chunk_bytes`.
struct AccumulatorRegion {
  std::size_t offset = 0;
  std::size_t bytes = 0;
  std::size_t locks_offset = 0;
  std::size_t chunk_bytes = 0;
  bool exclusive = false;  ///< this rank alone adds to it, and locks nothing
};

/// One-sided operations on one peer's symmetric memory, in stream order. A signal becomes visible
/// after everything that this channel put or added before it. Spans and what they point to stay
/// valid until the stream has passed.
///
/// Each operation fails with a peer error once any rank has failed.
class Channel {
 public:
  virtual ~Channel() = default;

  virtual int peer() const = 0;
  /// The peer's symmetric memory at `offset` where this rank's kernels can load from it; null where
  /// they cannot.
  virtual const std::byte* view(std::size_t offset) const = 0;
  /// Copies from the peer.
  virtual Status get(Stream& stream, std::span<const Piece> pieces) = 0;
  /// Copies to the peer.
  virtual Status put(Stream& stream, std::span<const Piece> pieces) = 0;
  /// Adds each addend once, whoever else adds at the same time. Addends are sorted by remote
  /// offset, do not overlap and lie in the region.
  virtual Status accumulate(Stream& stream, const AccumulatorRegion& region,
                            std::span<const Addend> addends) = 0;
  /// Sets the signal at `remote_offset` in the peer's control memory, a multiple of
  /// alignof(Signal); it only grows, and this rank alone sets it.
  virtual Status signal(Stream& stream, std::size_t remote_offset, std::uint64_t value) = 0;
  /// Holds the stream until the signal at `local_offset` in this rank's own control memory, set by
  /// the peer, is at least `at_least`. `what` names what the peer owes, for the error.
  virtual Status wait(Stream& stream, std::size_t local_offset, std::uint64_t at_least,
                      std::string_view what) = 0;
  /// Returns once everything before is visible to the peer.
  virtual Status flush(Stream& stream) = 0;
};

}  // namespace headrace
