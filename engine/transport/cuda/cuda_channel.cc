#include "transport/cuda/cuda_channel.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernel/cuda/accumulate.h"
#include "runtime/cuda/cuda_error.h"
#include "runtime/cuda/cuda_stream.h"

namespace headrace {
namespace {

Status by_copy_engine(cudaStream_t stream, const std::vector<CopySegment>& jobs) {
  if (jobs.size() == 1) {
    return cuda_status(
        ::cudaMemcpyAsync(jobs[0].to, jobs[0].from, jobs[0].bytes, cudaMemcpyDefault, stream),
        "cannot copy between device memories");
  }
#if CUDART_VERSION >= 13000
  std::vector<void*> targets;
  std::vector<const void*> sources;
  std::vector<std::size_t> sizes;
  for (const CopySegment& job : jobs) {
    targets.push_back(job.to);
    sources.push_back(job.from);
    sizes.push_back(job.bytes);
  }
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  std::size_t first = 0;
  return cuda_status(::cudaMemcpyBatchAsync(targets.data(), sources.data(), sizes.data(),
                                            jobs.size(), &attributes, &first, 1, stream),
                     "cannot copy between device memories");
#else
  for (const CopySegment& job : jobs) {
    HEADRACE_TRY(
        cuda_status(::cudaMemcpyAsync(job.to, job.from, job.bytes, cudaMemcpyDefault, stream),
                    "cannot copy between device memories"));
  }
  return {};
#endif
}

}  // namespace

Result<bool> CudaChannel::in_control(const Stream& stream, std::span<const Piece> pieces) const {
  const bool control = std::all_of(pieces.begin(), pieces.end(), [this](const Piece& piece) {
    return piece.remote_offset + piece.bytes <= endpoint_->control_bytes;
  });
  if (!control && stream.native_handle() == nullptr) {
    return operation_error(
        fmt::format("a stream of the host cannot reach the device memory of rank {}", peer()));
  }
  return control && stream.native_handle() == nullptr;
}

Status CudaChannel::copy(Stream& stream, std::vector<CopySegment> jobs) const {
  HEADRACE_TRY_ASSIGN(cudaStream_t native, native_stream(stream, "a copy"));
  jobs = merged(std::move(jobs));
  if (jobs.empty()) {
    return {};
  }
  return endpoint_->copies.by_kernel(jobs)
             ? copy_blocks(native, jobs, endpoint_->copies.kernel_blocks)
             : by_copy_engine(native, jobs);
}

Status CudaChannel::get(Stream& stream, std::span<const Piece> pieces) {
  HEADRACE_TRY(endpoint_->liveness->check());
  HEADRACE_TRY_ASSIGN(const bool control, in_control(stream, pieces));
  if (control) {
    return control_.get(stream, pieces);
  }
  std::vector<CopySegment> jobs;
  jobs.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    jobs.push_back(
        {.to = piece.local, .from = device_address(piece.remote_offset), .bytes = piece.bytes});
  }
  return copy(stream, std::move(jobs));
}

Status CudaChannel::put(Stream& stream, std::span<const Piece> pieces) {
  HEADRACE_TRY(endpoint_->liveness->check());
  HEADRACE_TRY_ASSIGN(const bool control, in_control(stream, pieces));
  if (control) {
    return control_.put(stream, pieces);
  }
  std::vector<CopySegment> jobs;
  jobs.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    jobs.push_back(
        {.to = device_address(piece.remote_offset), .from = piece.local, .bytes = piece.bytes});
  }
  return copy(stream, std::move(jobs));
}

Status CudaChannel::accumulate(Stream& stream, const AccumulatorRegion& region,
                               std::span<const Addend> addends) {
  HEADRACE_TRY(endpoint_->liveness->check());
  HEADRACE_TRY_ASSIGN(cudaStream_t native, native_stream(stream, "an accumulation"));
  std::vector<AccumulateJob> jobs;
  for (const Addend& addend : addends) {
    jobs.push_back({.to = reinterpret_cast<float*>(device_address(addend.remote_offset)),
                    .from = addend.local,
                    .dtype = addend.dtype,
                    .count = addend.count});
  }
  return launch_accumulate(native, jobs, region.exclusive ? Adders::one : Adders::many,
                           endpoint_->kernel_blocks);
}

Status CudaChannel::signal(Stream& stream, std::size_t remote_offset, std::uint64_t value) {
  if (stream.native_handle() == nullptr) {
    return control_.signal(stream, remote_offset, value);
  }
  HEADRACE_TRY(endpoint_->liveness->check());
  // Everything before in the stream is visible before the value is: the default of this call.
  return endpoint_->driver->status(
      endpoint_->driver->stream_write_value_64(
          static_cast<cudaStream_t>(stream.native_handle()),
          reinterpret_cast<CUdeviceptr>(device_control_ + remote_offset), value,
          CU_STREAM_WRITE_VALUE_DEFAULT),
      "cannot enqueue a signal");
}

Status CudaChannel::wait(Stream& stream, std::size_t local_offset, std::uint64_t at_least,
                         std::string_view what) {
  if (stream.native_handle() == nullptr) {
    return control_.wait(stream, local_offset, at_least, what);
  }
  HEADRACE_TRY(endpoint_->liveness->check());
  auto* signal = reinterpret_cast<Signal*>(endpoint_->control + local_offset);
  if (signal->value.load(std::memory_order_acquire) >= at_least) {
    return {};
  }
  endpoint_->monitor->expect(stream.native_handle(), signal, at_least, peer(), what);
  return endpoint_->driver->status(
      endpoint_->driver->stream_wait_value_64(
          static_cast<cudaStream_t>(stream.native_handle()),
          reinterpret_cast<CUdeviceptr>(endpoint_->device_control + local_offset), at_least,
          CU_STREAM_WAIT_VALUE_GEQ),
      "cannot enqueue a wait for a signal");
}

Status CudaChannel::flush(Stream&) { return endpoint_->liveness->check(); }

}  // namespace headrace
