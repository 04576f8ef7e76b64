#include "transport/cuda/cuda_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernel/cuda/accumulate.h"
#include "runtime/cuda/cuda_error.h"
#include "runtime/cuda/cuda_stream.h"

namespace headrace {
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

Status CudaChannel::copy(Stream& stream, std::span<const CopySegment> jobs) const {
  HEADRACE_TRY_ASSIGN(cudaStream_t native, native_stream(stream, "a copy"));
  return enqueue_copies(native, merged(jobs), endpoint_->copies);
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
  return copy(stream, jobs);
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
  return copy(stream, jobs);
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
