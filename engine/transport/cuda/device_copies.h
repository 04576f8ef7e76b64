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
  kernel,       ///< one launch of `kernel_blocks`
};

/// When a copy engine pays. A descriptor has a fixed cost before what it moves, so many pieces are
/// bound by their number unless they are large; one kernel moves them all, on streaming
/// multiprocessors that computation would use. Defaults: measured on one H200, docs/gpu.md.
struct CopyChoice {
  CopyWay way = CopyWay::automatic;
  double descriptor_us = 5.4;
  double engine_bytes_per_us = 2.0e6;
  double kernel_us = 6.0;
  double kernel_bytes_per_us = 1.4e6;  ///< of `kernel_blocks`
  int kernel_blocks = 32;

  /// Whether the kernel should carry these copies.
  bool by_kernel(std::span<const CopySegment> copies) const;
};

/// Joins copies that are neighbours at both ends, and leaves out those of no bytes.
std::vector<CopySegment> merged(std::span<const CopySegment> copies);

/// Enqueues the copies, which do not overlap, in any order among themselves.
Status enqueue_copies(cudaStream_t stream, std::span<const CopySegment> copies,
                      const CopyChoice& choice);

}  // namespace headrace
