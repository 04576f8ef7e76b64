#include <memory>

#include "bench/cuda/axpy.h"
#include "bench/cuda/buffer.h"

namespace headrace::bench {
namespace {

constexpr unsigned k_threads = 256;

__global__ void axpy(float4* y, const float4* x, float a, std::size_t vectors) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < vectors) {
    const float4 left = x[i];
    const float4 right = y[i];
    y[i] = make_float4(right.x + a * left.x, right.y + a * left.y, right.z + a * left.z,
                       right.w + a * left.w);
  }
}

}  // namespace

Result<AxpyWork> axpy_work(std::size_t bytes) {
  HEADRACE_TRY_ASSIGN(auto x, DeviceBuffer::make(bytes));
  HEADRACE_TRY_ASSIGN(auto y, DeviceBuffer::make(bytes));
  HEADRACE_TRY(cuda_status(cudaMemset(x.data(), 0, bytes), "zeroing an array"));
  HEADRACE_TRY(cuda_status(cudaMemset(y.data(), 0, bytes), "zeroing an array"));
  auto arrays = std::make_shared<std::pair<DeviceBuffer, DeviceBuffer>>(std::move(x), std::move(y));
  const auto enqueue = [arrays, bytes](cudaStream_t stream) {
    const std::size_t vectors = bytes / sizeof(float4);
    const auto blocks = static_cast<unsigned>((vectors + k_threads - 1) / k_threads);
    axpy<<<blocks, k_threads, 0, stream>>>(static_cast<float4*>(arrays->second.data()),
                                           static_cast<const float4*>(arrays->first.data()), 0.5F,
                                           vectors);
    return cuda_status(cudaGetLastError(), "launch of axpy");
  };
  return AxpyWork{.work = {.name = "axpy", .enqueue = enqueue}, .traffic = 3 * bytes};
}

}  // namespace headrace::bench
