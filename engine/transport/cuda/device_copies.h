#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>
#include <vector>

#include "kernel/cuda/copy.h"

namespace headrace {

/// What carries the copies of one call.
enum class CopyWay {
  automatic,    ///< whichever the model below expects to be done first
  copy_engine,  ///< no streaming multiprocessor is used
  kernel,       ///< one launch of few blocks
};

/// When a copy engine pays. A descriptor has a fixed cost whatever it moves, so many small pieces
/// are bound by their number; one kernel moves them all, on streaming multiprocessors that compute
/// would use. Defaults: one H200, docs/gpu.md.
struct CopyChoice {
  CopyWay way = CopyWay::automatic;
  double descriptor_us = 4.5;
  double engine_bytes_per_us = 2.0e6;
  double kernel_us = 6.0;
  double kernel_bytes_per_us = 0.5e6;
  int kernel_blocks = 16;

  /// Whether the kernel should carry these copies.
  bool by_kernel(std::span<const CopySegment> copies) const;
};

/// Joins copies that are neighbours at both ends, and leaves out those of no bytes.
std::vector<CopySegment> merged(std::span<const CopySegment> copies);

/// Enqueues the copies, which do not overlap, in any order among themselves.
Status enqueue_copies(cudaStream_t stream, std::span<const CopySegment> copies,
                      const CopyChoice& choice);

}  // namespace headrace
