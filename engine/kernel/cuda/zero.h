#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "base/result.h"

namespace headrace {

/// Zeroes `rows` rows of `bytes` bytes, `pitch` bytes from start to start.
Status launch_zero(cudaStream_t stream, void* address, std::size_t pitch, std::size_t bytes,
                   std::size_t rows);

}  // namespace headrace
