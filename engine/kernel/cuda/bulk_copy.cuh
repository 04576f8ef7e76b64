#pragma once

#include <cstdint>

// Bulk copies from global to shared memory that complete on a barrier in shared memory (sm_90). A
// barrier's phases alternate in parity, the first is 0; it completes when as many arrivals as it
// was made for and all announced bytes have come.

namespace headrace {

using Barrier = std::uint64_t;

__device__ __forceinline__ unsigned shared_address(const void* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

#if __CUDA_ARCH__ >= 900
/// By one thread, followed by barriers_made() and a barrier of the block.
__device__ __forceinline__ void make_barrier(Barrier* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}

/// Shows the new barriers to the copy engine.
__device__ __forceinline__ void barriers_made() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

/// Arrives and announces bytes that copies will bring in this phase.
__device__ __forceinline__ void arrive_expecting(Barrier* barrier, unsigned bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

/// Returns once the phase of this parity has completed.
__device__ __forceinline__ void wait_for(Barrier* barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

/// `bytes`, a multiple of 16, between addresses that are multiples of 16.
__device__ __forceinline__ void copy_bulk(void* shared, std::uintptr_t global, unsigned bytes,
                                          Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}
#endif

}  // namespace headrace
