#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <span>

#include "base/clock.h"
#include "runtime/stream.h"

namespace headrace {

/// Which work goes first where several streams have some ready.
enum class StreamPriority { low, high };

/// A stream of the device that was current when it was made, to be used from any thread. It runs
/// what backends enqueue on its native handle, a cudaStream_t, and no operation of the host. Its
/// events can be waited for on the device by any stream of it, and by the host, which polls: no
/// wait of the host is unbounded.
class CudaStream final : public Stream {
 public:
  /// What has gone wrong where the work ran through all the same: asked once an event has been
  /// waited for. Empty: nothing can.
  using Check = std::function<Status()>;

  static Result<std::unique_ptr<CudaStream>> make(StreamPriority priority, Check check);
  /// A stream of the caller's on the current device, which must outlive this.
  static std::unique_ptr<CudaStream> borrow(cudaStream_t stream, Check check);

  Status enqueue(const Operation& operation) override;
  Result<Event> record() override;
  Status wait(Event event, Deadline deadline) override;
  void* native_handle() const override { return handle_.get(); }
  /// Goes with its last holder, unless it is borrowed.
  std::shared_ptr<CUstream_st> handle() const { return handle_; }

 private:
  CudaStream(std::shared_ptr<CUstream_st> handle, Check check);

  std::shared_ptr<CUstream_st> handle_;
  int device_ = 0;
  Check check_;
};

/// Whether all of these streams have passed what they were given, in the time that there is. A
/// stream that failed counts as having passed.
bool all_passed(std::span<const std::shared_ptr<CUstream_st>> streams, Deadline deadline);

/// The cudaStream_t of a stream; an operation error where it is a stream of the host.
Result<cudaStream_t> native_stream(const Stream& stream, const char* operation);

}  // namespace headrace
