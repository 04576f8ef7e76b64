#include "bench/cuda/loads.h"

#include <memory>

#include "bench/cuda/buffer.h"
#include "kernel/cuda/accumulate.h"
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

Result<Load> reduce_scatter_load(const CudaKernels& kernels, int ranks, std::size_t bytes) {
  HEADRACE_TRY_ASSIGN(Load summed, sum_load(kernels, ranks, bytes));
  const std::size_t staged =
      bytes / static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks - 1);
  HEADRACE_TRY_ASSIGN(Load copied, copy_engine_load(staged));
  const auto enqueue = [copy = copied.enqueue, sum = summed.enqueue](Stream& stream) -> Status {
    HEADRACE_TRY(copy(stream));
    return sum(stream);
  };
  return Load{.name = "reduce-scatter",
              .enqueue = enqueue,
              .bytes = bytes,
              .traffic = copied.traffic + summed.traffic};
}

Result<Load> push_load(int blocks, std::size_t bytes) {
  const std::size_t elements = bytes / item_size(DType::bfloat16);
  HEADRACE_TRY_ASSIGN(auto gradients, DeviceBuffer::make(bytes));
  HEADRACE_TRY_ASSIGN(auto sums, DeviceBuffer::make(elements * sizeof(float)));
  HEADRACE_TRY(cuda_status(cudaMemset(gradients.data(), 0, gradients.bytes()), "zeroing a buffer"));
  HEADRACE_TRY(cuda_status(cudaMemset(sums.data(), 0, sums.bytes()), "zeroing a buffer"));
  const std::vector<AccumulateJob> jobs{{.to = static_cast<float*>(sums.data()),
                                         .from = gradients.data(),
                                         .dtype = DType::bfloat16,
                                         .count = elements}};
  const std::size_t traffic = gradients.bytes() + 2 * sums.bytes();
  auto memory = std::make_shared<std::pair<DeviceBuffer, DeviceBuffer>>(std::move(gradients),
                                                                        std::move(sums));
  const auto enqueue = [memory, jobs, blocks](Stream& stream) -> Status {
    HEADRACE_TRY_ASSIGN(const cudaStream_t native, native_stream(stream, "an accumulation"));
    return launch_accumulate(native, jobs, Adders::many, blocks);
  };
  return Load{.name = "push", .enqueue = enqueue, .bytes = bytes, .traffic = traffic};
}

Result<Load> packed_load(int ranks, std::size_t bytes) {
  const auto count = static_cast<std::size_t>(ranks);
  const std::size_t elements = bytes / item_size(DType::bfloat16) / count * count;
  const std::size_t packed_bytes = elements * sizeof(float);
  HEADRACE_TRY_ASSIGN(const CudaKernels kernels, CudaKernels::create({}));
  HEADRACE_TRY_ASSIGN(auto gradients, DeviceBuffer::make(bytes));
  HEADRACE_TRY_ASSIGN(auto packed, DeviceBuffer::make(2 * packed_bytes + packed_bytes / count));
  HEADRACE_TRY(cuda_status(cudaMemset(gradients.data(), 0, gradients.bytes()), "zeroing a buffer"));
  auto* mine = static_cast<std::byte*>(packed.data());
  std::byte* theirs = mine + packed_bytes;
  const std::vector<CastJob> pack{{.to = mine,
                                   .to_dtype = DType::float32,
                                   .from = gradients.data(),
                                   .from_dtype = DType::bfloat16,
                                   .count = elements}};
  SumJob sum{.to = reinterpret_cast<float*>(theirs + packed_bytes),
             .rows = 1,
             .elements = elements / count};
  for (std::size_t rank = 0; rank < count; ++rank) {
    sum.sources.push_back({.address = theirs + rank * (packed_bytes / count)});
  }
  auto memory = std::make_shared<std::pair<DeviceBuffer, DeviceBuffer>>(std::move(gradients),
                                                                        std::move(packed));
  const auto enqueue = [memory, pack, sum, kernels, mine, theirs,
                        packed_bytes](Stream& stream) -> Status {
    HEADRACE_TRY(kernels.cast(stream, pack));
    HEADRACE_TRY_ASSIGN(const cudaStream_t native, native_stream(stream, "a copy"));
    HEADRACE_TRY(
        cuda_status(cudaMemcpyAsync(theirs, mine, packed_bytes, cudaMemcpyDeviceToDevice, native),
                    "enqueueing a copy"));
    return kernels.sum(stream, sum);
  };
  return Load{.name = "packed reduce-scatter",
              .enqueue = enqueue,
              .bytes = bytes,
              .traffic = bytes + 4 * packed_bytes + packed_bytes / count};
}

}  // namespace headrace::bench
