#pragma once

#include <cuda_runtime_api.h>

#include <span>

#include "base/result.h"
#include "kernel/kernels.h"

namespace headrace {

/// Every job as kernel/cast.h converts, with `blocks` blocks at most. Jobs that convert share
/// launches, some hundreds to one, and so do jobs that copy.
Status launch_cast(cudaStream_t stream, std::span<const CastJob> jobs, int blocks);

}  // namespace headrace
