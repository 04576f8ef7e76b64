#pragma once

#include <cstddef>

#include "plan/packed_output.h"

namespace headrace {

/// The packed output cut into one sub-slice a local rank, and each sub-slice into one part a pass.
/// An element's sub-slice does not depend on the number of passes, nor then does the order in which
/// its node partials are added.
///
/// Post-conditions: the parts of all sub-slices and passes are disjoint and cover the output; no
/// part exceeds `part_capacity`; sub-slices and parts start at multiples of 16 bytes; the last ones
/// may be short or empty.
class SubSlices {
 public:
  SubSlices(std::size_t packed_elements, int local_ranks, int passes);

  /// E_sub: elements of a sub-slice.
  std::size_t capacity() const { return capacity_; }
  /// Elements of a part, and of a row of an inbox or outbox block.
  std::size_t part_capacity() const { return part_capacity_; }
  Stretch part(int sub_slice, int pass) const;

 private:
  std::size_t elements_;
  std::size_t capacity_;
  std::size_t part_capacity_;
};

}  // namespace headrace
