#include "bench/cuda/loads.h"

#include <memory>

#include "bench/cuda/buffer.h"

namespace headrace::bench {
namespace {

// Takes kernels, and nothing else.
class BorrowedStream final : public Stream {
 public:
  explicit BorrowedStream(cudaStream_t stream) : stream_(stream) {}

  Status enqueue(const Operation& /*operation*/) override { return refusal(); }
  Result<Event> record() override { return refusal(); }
  Status wait(Event /*event*/, Deadline /*deadline*/) override { return refusal(); }
  void* native_handle() const override { return stream_; }

 private:
  static Error refusal() { return operation_error("this stream takes kernels alone"); }

  cudaStream_t stream_;
};

}  // namespace

Result<Load> copy_engine_load(std::size_t bytes) {
  HEADRACE_TRY_ASSIGN(auto buffer, DeviceBuffer::make(2 * bytes));
  HEADRACE_TRY(cuda_status(cudaMemset(buffer.data(), 0, buffer.bytes()), "zeroing a buffer"));
  auto memory = std::make_shared<DeviceBuffer>(std::move(buffer));
  const auto enqueue = [memory, bytes](cudaStream_t stream) {
    auto* data = static_cast<std::byte*>(memory->data());
    return cuda_status(cudaMemcpyAsync(data + bytes, data, bytes, cudaMemcpyDeviceToDevice, stream),
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
  const auto enqueue = [memory, job, kernels](cudaStream_t stream) {
    BorrowedStream borrowed(stream);
    return kernels.sum(borrowed, job);
  };
  return Load{.name = "sum of " + std::to_string(sources) + " bf16",
              .enqueue = enqueue,
              .bytes = bytes,
              .traffic = bytes + output_bytes};
}

}  // namespace headrace::bench
