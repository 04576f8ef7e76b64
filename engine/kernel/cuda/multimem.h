#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "base/dtype.h"
#include "base/result.h"

// Sums and copies that the switch does for all members of a multicast object (sm_90). Nothing here
// makes such an object: every multicast address is one that the caller has bound on all members'
// devices, at the caller's explicit wish. Calls where the device has no multicast are an operation
// error. Addresses are aligned to four bytes.

namespace headrace {

/// Whether the calling thread's current device could be a member of a multicast object.
Result<bool> multicast_supported();

/// to[i] = scale * (sum of all members' element i), read through `multicast`. The switch adds in
/// fp32 in an order of its own; a sum of bf16 it rounds to bf16 before it is scaled. With bf16,
/// `count` is even.
Status multimem_sum(cudaStream_t stream, float* to, const void* multicast, DType dtype,
                    std::size_t count, float scale, int blocks);

/// Every member's multicast[i] += from[i] in fp32, while others may add too.
Status multimem_accumulate(cudaStream_t stream, float* multicast, const float* from,
                           std::size_t count, int blocks);

/// Every member gets a copy of `bytes` bytes, a multiple of four.
Status multimem_copy(cudaStream_t stream, void* multicast, const void* from, std::size_t bytes,
                     int blocks);

}  // namespace headrace
