#pragma once

#include <cuda_runtime_api.h>

#include <span>

#include "base/result.h"
#include "kernel/kernels.h"

namespace headrace {

/// Every job as kernels.h describes it, with `blocks` blocks at most. Jobs share launches; a job
/// with more addends than one holds is continued by the next, which changes no bit.
Status launch_fold(cudaStream_t stream, std::span<const FoldJob> jobs, int blocks);

}  // namespace headrace
