#pragma once

#include "kernel/cuda/vector.cuh"

// Additions to memory that other devices may add to at the same time.

namespace headrace {

__device__ __forceinline__ void reduce_add(float* to, float value) {
#if __CUDA_ARCH__ >= 700
  asm volatile("red.relaxed.sys.global.add.f32 [%0], %1;" ::"l"(to), "f"(value) : "memory");
#else
  atomicAdd_system(to, value);
#endif
}

/// `to` is aligned to the group's 16 bytes.
__device__ __forceinline__ void reduce_add(float* to, const Floats<4>& group) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.relaxed.sys.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to),
               "f"(group.values[0]), "f"(group.values[1]), "f"(group.values[2]),
               "f"(group.values[3])
               : "memory");
#else
  for (unsigned i = 0; i < 4; ++i) {
    reduce_add(to + i, group.values[i]);
  }
#endif
}

}  // namespace headrace
