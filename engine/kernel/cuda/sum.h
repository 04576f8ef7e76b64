#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/result.h"
#include "kernel/kernels.h"

namespace headrace {

enum class SumMethod : std::uint8_t {
  automatic,  ///< bulk where the device has it and the job's rows are aligned and long, else plain
  plain,      ///< each thread loads vectors of 16 bytes
  bulk,       ///< the copy engine of each multiprocessor brings tiles of all sources to shared
              ///< memory, a few tiles ahead; what it cannot copy (sm_90, 16-byte alignment) is an
              ///< error
};

/// Sources of one sum: what a launch's parameters hold.
constexpr unsigned k_max_sum_sources = 120;

/// A sum as kernels.h describes it, in one launch of `blocks` blocks at most; an error with more
/// than k_max_sum_sources sources. The bulk method runs one block a multiprocessor.
Status launch_sum(cudaStream_t stream, const SumJob& job, SumMethod method, int blocks);

}  // namespace headrace
