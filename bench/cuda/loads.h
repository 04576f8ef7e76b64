#pragma once

#include <vector>

#include "bench/cuda/work.h"
#include "kernel/cuda/cuda_kernels.h"

namespace headrace::bench {

/// A flat copy within the device, by its copy engine.
Result<Load> copy_engine_load(std::size_t bytes);

/// The sum of `sources` bf16 arrays to fp32, as a reduction has it: `bytes` counts what it reads.
Result<Load> sum_load(const CudaKernels& kernels, int sources, std::size_t bytes);

/// What a rank does for its part of a reduce-scatter among `ranks` on one node: peers' gradients,
/// of `bytes` bytes in all, come by copy engine to be staged, and are summed.
Result<Load> reduce_scatter_load(const CudaKernels& kernels, int ranks, std::size_t bytes);

/// What a rank does for a push of `bytes` bytes of bf16 gradients: adds them to owners' fp32
/// accumulators, to which others may add at the same time.
Result<Load> push_load(int blocks, std::size_t bytes);

/// What stock FSDP2 does for the same gradients, with our kernels on as many blocks as the device
/// runs at a time: packs them rank-major in fp32, exchanges them, and sums the peers' blocks.
Result<Load> packed_load(int ranks, std::size_t bytes);

}  // namespace headrace::bench
