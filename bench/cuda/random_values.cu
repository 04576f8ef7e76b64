#include <cstdint>

#include "bench/cuda/random_values.h"
#include "runtime/cuda/cuda_error.h"

namespace headrace::bench {
namespace {

constexpr unsigned k_threads = 256;

// A bf16 is the upper half of an fp32; cuda_bf16.h takes longer to compile than all of this.
__global__ void fill(std::uint16_t* values, std::size_t count, unsigned seed) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) {
    // The finaliser of MurmurHash3.
    unsigned bits = static_cast<unsigned>(i) ^ (seed * 0x9E3779B9U);
    bits = (bits ^ (bits >> 16)) * 0x85EBCA6BU;
    bits = (bits ^ (bits >> 13)) * 0xC2B2AE35U;
    bits ^= bits >> 16;
    const float value = static_cast<float>(bits) * 0x1p-31F - 1.0F;
    values[i] = static_cast<std::uint16_t>(__float_as_uint(value) >> 16);
  }
}

}  // namespace

Status fill_bfloat16(cudaStream_t stream, void* values, std::size_t count, unsigned seed) {
  const auto blocks = static_cast<unsigned>((count + k_threads - 1) / k_threads);
  fill<<<blocks, k_threads, 0, stream>>>(static_cast<std::uint16_t*>(values), count, seed);
  return cuda_status(cudaGetLastError(), "launch of a fill with random values");
}

}  // namespace headrace::bench
