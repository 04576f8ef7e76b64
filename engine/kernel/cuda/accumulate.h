#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/result.h"

namespace headrace {

/// to[i] += from[i] in fp32, each sum rounded once. `to` may be another device's memory.
struct AccumulateJob {
  float* to = nullptr;
  const void* from = nullptr;
  DType dtype = DType::float32;
  std::size_t count = 0;
};

/// Who adds to a destination while the kernel runs.
enum class Adders : std::uint8_t {
  one,   ///< this job alone: load, add, store; the same bits as the host's accumulate
  many,  ///< other kernels, devices and jobs of the same call too: atomic reductions in the order
         ///< of their arrival, which take a denormal addend, accumulator or sum for a zero
};

/// Every job with `blocks` blocks at most, some hundreds of jobs to a launch. Sums have been added
/// once the stream has passed.
Status launch_accumulate(cudaStream_t stream, std::span<const AccumulateJob> jobs, Adders adders,
                         int blocks);

}  // namespace headrace
