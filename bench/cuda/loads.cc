#include "bench/cuda/loads.h"

#include <memory>

#include "bench/cuda/buffer.h"
#include "runtime/cuda/cuda_stream.h"

namespace headrace::bench {

Result<Load> copy_engine_load(std::size_t bytes) {
  HEADRACE_TRY_ASSIGN(auto buffer, DeviceBuffer::make(2 * bytes));
  HEADRACE_TRY(cuda_status(cudaMemset(buffer.data(), 0, buffer.bytes()), "zeroing a buffer"));
  auto memory = std::make_shared<DeviceBuffer>(std::move(buffer));
  const auto enqueue = [memory, bytes](Stream& stream) -> Status {
    HEADRACE_TRY_ASSIGN(const cudaStream_t native, native_stream(stream, "a copy"));
    auto* data = static_cast<std::byte*>(memory->data());
    return cuda_status(cudaMemcpyAsync(data + bytes, data, bytes, cudaMemcpyDeviceToDevice, native),
                       "enqueueing a copy");
  };
  return Load{.name = "copy engine", .enqueue = enqueue, .bytes = bytes, .traffic = 2 * bytes};
}

Result<Load> sum_load(const CudaKernels& kernels, int sources, std::size_t bytes) {
  const auto count = static_cast<std::size_t>(sources);
  const std::size_t elements = bytes / (count * item_size(DType::bfloat16));
  const std::size_t output_bytes = elements * sizeof(float);
  HEADRACE_TRY_ASSIGN(auto input, DeviceBuffer::make(bytes));
  HEADRACE_TRY_ASSIGN(auto output, DeviceBuffer::make(output_bytes));
  HEADRACE_TRY(cuda_status(cudaMemset(input.data(), 0, input.bytes()), "zeroing a buffer"));
  SumJob job{.to = static_cast<float*>(output.data()), .rows = 1, .elements = elements};
  for (std::size_t i = 0; i < count; ++i) {
    job.sources.push_back({.address = static_cast<std::byte*>(input.data()) +
                                      i * elements * item_size(DType::bfloat16),
                           .dtype = DType::bfloat16});
  }
  auto memory =
      std::make_shared<std::pair<DeviceBuffer, DeviceBuffer>>(std::move(input), std::move(output));
  const auto enqueue = [memory, job, kernels](Stream& stream) { return kernels.sum(stream, job); };
  return Load{.name = "sum of " + std::to_string(sources) + " bf16",
              .enqueue = enqueue,
              .bytes = bytes,
              .traffic = bytes + output_bytes};
}

}  // namespace headrace::bench
