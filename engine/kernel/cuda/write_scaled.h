#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "base/dtype.h"
#include "base/result.h"

namespace headrace {

/// What kernel/accumulate.h's write_scaled computes, with `blocks` blocks at most. The destination
/// is aligned to its elements.
Status launch_write_scaled(cudaStream_t stream, void* destination, DType dtype, const float* source,
                           float scale, std::size_t count, bool add, int blocks);

}  // namespace headrace
