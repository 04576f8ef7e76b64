#pragma once

#include <vector>

#include "bench/cuda/work.h"
#include "kernel/cuda/cuda_kernels.h"

namespace headrace::bench {

/// A flat copy within the device, by its copy engine.
Result<Load> copy_engine_load(std::size_t bytes);

/// The sum of `sources` bf16 arrays to fp32, as a reduction has it: `bytes` counts what it reads.
Result<Load> sum_load(const CudaKernels& kernels, int sources, std::size_t bytes);

}  // namespace headrace::bench
