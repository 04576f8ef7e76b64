#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "base/result.h"

namespace headrace::bench {

/// Fills `count` bf16 elements with values between -1 and 1, the same for the same seed. What a
/// matrix product draws, and so its clock, depends on its values: zeros are too fast.
Status fill_bfloat16(cudaStream_t stream, void* values, std::size_t count, unsigned seed);

}  // namespace headrace::bench
