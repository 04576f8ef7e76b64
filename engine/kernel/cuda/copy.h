#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

#include "base/result.h"

namespace headrace {

/// `bytes` bytes from one address to another, both anywhere.
struct CopySegment {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
};

/// Copies every segment with `blocks` blocks at most, some hundreds to a launch: for pieces so
/// small that a copy engine's descriptors would cost more than the bytes. Ranges must not overlap.
/// Where the ends of a segment are aligned alike it moves by vectors of 16 bytes, else stores are
/// that wide and loads as wide as both ends allow.
Status copy_blocks(cudaStream_t stream, std::span<const CopySegment> segments, int blocks);

}  // namespace headrace
