#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>

#include "runtime/stream.h"

namespace headrace {

/// Which work goes first where several streams have some ready.
enum class StreamPriority { low, high };

/// A stream of the device that was current when it was made. It runs what backends enqueue on its
/// native handle, a cudaStream_t, and no operation of the host. Its events can be waited for on the
/// device by any stream of it, and by the host, which polls: no wait of the host is unbounded.
class CudaStream final : public Stream {
 public:
  /// What has gone wrong where the work ran through all the same: asked once an event has been
  /// waited for. Empty: nothing can.
  using Check = std::function<Status()>;

  static Result<std::unique_ptr<CudaStream>> make(StreamPriority priority, Check check);
  /// A stream of the caller's, which must outlive this.
  static std::unique_ptr<CudaStream> borrow(cudaStream_t stream, Check check);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  Status enqueue(const Operation& operation) override;
  Result<Event> record() override;
  Status wait(Event event, Deadline deadline) override;
  void* native_handle() const override { return stream_; }

 private:
  CudaStream(cudaStream_t stream, bool owned, Check check)
      : stream_(stream), owned_(owned), check_(std::move(check)) {}

  cudaStream_t stream_;
  bool owned_;
  Check check_;
};

/// The cudaStream_t of a stream; an operation error where it is a stream of the host.
Result<cudaStream_t> native_stream(const Stream& stream, const char* operation);

}  // namespace headrace
