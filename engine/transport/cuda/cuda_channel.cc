#include "transport/cuda/cuda_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernel/cuda/accumulate.h"
#include "runtime/cuda/cuda_error.h"
#include "runtime/cuda/cuda_stream.h"
#include "runtime/cuda/current_device.h"

namespace headrace {
namespace {

bool lies_in(std::size_t offset, std::size_t bytes, std::size_t begin, std::size_t end) {
  return offset >= begin && offset <= end && bytes <= end - offset;
}

}  // namespace

Status CudaChannel::check_control(std::span<const Piece> pieces) const {
  for (const Piece& piece : pieces) {
    if (piece.bytes > 0 &&
        !lies_in(piece.remote_offset, piece.bytes, 0, endpoint_->control_bytes)) {
      return operation_error(
          fmt::format("a stream of the host cannot reach {} bytes at offset {} of rank {}: from {} "
                      "on memory is "
                      "the device's; use a stream that the transport made",
                      piece.bytes, piece.remote_offset, peer(), endpoint_->control_bytes));
    }
  }
  return {};
}

Status CudaChannel::check_data(std::size_t offset, std::size_t bytes) const {
  if (lies_in(offset, bytes, endpoint_->control_bytes, endpoint_->memory_bytes)) {
    return {};
  }
  return operation_error(fmt::format(
      "a stream of the device cannot reach {} bytes at offset {} of rank {}: its device memory is "
      "[{}, {}), and what is before it is for streams of the host",
      bytes, offset, peer(), endpoint_->control_bytes, endpoint_->memory_bytes));
}

Status CudaChannel::check_signal(std::size_t offset) const {
  if (offset % alignof(Signal) == 0 &&
      lies_in(offset, sizeof(Signal), 0, endpoint_->control_bytes)) {
    return {};
  }
  return operation_error(fmt::format(
      "there can be no signal at offset {}: signals are multiples of {} bytes in control memory, "
      "[0, {}); make TransportConfig::control_bytes larger, or move it",
      offset, alignof(Signal), endpoint_->control_bytes));
}

Status CudaChannel::copy(Stream& stream, std::span<const Piece> pieces, bool to_peer) const {
  HEADRACE_TRY_ASSIGN(cudaStream_t native, native_stream(stream, "a copy"));
  std::vector<CopySegment> jobs;
  jobs.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    if (piece.bytes == 0) {
      continue;
    }
    HEADRACE_TRY(check_data(piece.remote_offset, piece.bytes));
    std::byte* remote = device_address(piece.remote_offset);
    jobs.push_back(to_peer ? CopySegment{.to = remote, .from = piece.local, .bytes = piece.bytes}
                           : CopySegment{.to = piece.local, .from = remote, .bytes = piece.bytes});
  }
  const CurrentDevice device(endpoint_->device);
  return enqueue_copies(native, merged(jobs), endpoint_->copies);
}

Status CudaChannel::get(Stream& stream, std::span<const Piece> pieces) {
  HEADRACE_TRY(endpoint_->liveness->check());
  if (stream.native_handle() == nullptr) {
    HEADRACE_TRY(check_control(pieces));
    return control_.get(stream, pieces);
  }
  return copy(stream, pieces, false);
}

Status CudaChannel::put(Stream& stream, std::span<const Piece> pieces) {
  HEADRACE_TRY(endpoint_->liveness->check());
  if (stream.native_handle() == nullptr) {
    HEADRACE_TRY(check_control(pieces));
    return control_.put(stream, pieces);
  }
  return copy(stream, pieces, true);
}

Status CudaChannel::accumulate(Stream& stream, const AccumulatorRegion& region,
                               std::span<const Addend> addends) {
  HEADRACE_TRY(endpoint_->liveness->check());
  HEADRACE_TRY_ASSIGN(cudaStream_t native, native_stream(stream, "an accumulation"));
  std::vector<AccumulateJob> jobs;
  for (const Addend& addend : addends) {
    HEADRACE_TRY(check_data(addend.remote_offset,
                            std::min(addend.count, SIZE_MAX / sizeof(float)) * sizeof(float)));
    jobs.push_back({.to = reinterpret_cast<float*>(device_address(addend.remote_offset)),
                    .from = addend.local,
                    .dtype = addend.dtype,
                    .count = addend.count});
  }
  const CurrentDevice device(endpoint_->device);
  return launch_accumulate(native, jobs, region.exclusive ? Adders::one : Adders::many,
                           endpoint_->kernel_blocks);
}

Status CudaChannel::signal(Stream& stream, std::size_t remote_offset, std::uint64_t value) {
  HEADRACE_TRY(check_signal(remote_offset));
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
  HEADRACE_TRY(check_signal(local_offset));
  if (stream.native_handle() == nullptr) {
    return control_.wait(stream, local_offset, at_least, what);
  }
  HEADRACE_TRY(endpoint_->liveness->check());
  auto* signal = reinterpret_cast<Signal*>(endpoint_->control + local_offset);
  if (signal->value.load(std::memory_order_acquire) >= at_least) {
    return {};
  }
  endpoint_->monitor->expect(stream.native_handle(), signal, at_least, peer(), what);
  Status enqueued = endpoint_->driver->status(
      endpoint_->driver->stream_wait_value_64(
          static_cast<cudaStream_t>(stream.native_handle()),
          reinterpret_cast<CUdeviceptr>(endpoint_->device_control + local_offset), at_least,
          CU_STREAM_WAIT_VALUE_GEQ),
      "cannot enqueue a wait for a signal");
  if (!enqueued) {
    endpoint_->monitor->withdraw(stream.native_handle());
  }
  return enqueued;
}

Status CudaChannel::flush(Stream&) { return endpoint_->liveness->check(); }

}  // namespace headrace
