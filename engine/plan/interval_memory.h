#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/lane_clock.h"

namespace headrace {

/// What symbolic bytes hold: nothing known, zeros, or consecutive elements of a parameter (or of
/// sums of its gradients).
struct Value {
  enum class Kind : std::uint8_t { unknown, zero, data };
  /// Why nothing is known.
  enum class Fault : std::uint8_t {
    unwritten,  ///< never written
    dtype,      ///< read in another dtype than it was written in
    mixed,      ///< a sum of different elements, or of different calls
    twice,      ///< a sum with one contribution twice
    unfinal,    ///< a sum with an addend that was finished before
  };

  Kind kind = Kind::unknown;
  Fault fault = Fault::unwritten;
  bool finished = false;
  std::uint32_t item_bytes = 1;
  std::uint32_t use = 0;         ///< data: which use of which group
  std::uint32_t parameter = 0;   ///< data
  std::uint64_t element = 0;     ///< data: the first, counted in the unsharded parameter
  std::uint32_t expression = 0;  ///< data: what was added, and in which order
  Epoch culprit;                 ///< unknown: the operation that made it so, if any

  /// What lies `bytes` further on.
  Value advanced(std::size_t bytes) const;
  bool operator==(const Value&) const = default;
};

/// Equal in kind and origin over [begin, end), with who wrote it last and who has read it since.
struct Segment {
  std::size_t begin = 0;
  std::size_t end = 0;
  Value value;
  Epoch writer;
  std::vector<Epoch> readers;
};

/// `bytes` bytes with a value.
struct Extent {
  std::size_t bytes = 0;
  Value value;
};

/// Symbolic memory as intervals. It checks nothing; the caller looks at the segments.
class IntervalMemory {
 public:
  explicit IntervalMemory(std::size_t bytes = 0) { reset(bytes); }

  std::size_t bytes() const { return bytes_; }
  /// All unwritten and unread again.
  void reset(std::size_t bytes);
  /// The segments that cover exactly [begin, end); valid until the next call of a member that is
  /// not const.
  std::span<Segment> range(std::size_t begin, std::size_t end);
  std::span<const Segment> segments() const { return segments_; }
  /// The extents, end to end from `begin`, written by `writer`; readers are forgotten.
  void write(std::size_t begin, std::span<const Extent> extents, Epoch writer);

 private:
  std::size_t split(std::size_t at);

  std::vector<Segment> segments_;
  std::size_t bytes_ = 0;
};

/// Adds an extent, to the last one where its value goes on.
void append(std::vector<Extent>& extents, const Extent& extent);

}  // namespace headrace
