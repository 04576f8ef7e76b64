#include "runtime/cuda/cuda_stream.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "runtime/cuda/cuda_error.h"
#include "runtime/cuda/current_device.h"

namespace headrace {
namespace {

// The host's polls of an event: at once at first, then ever further apart.
constexpr int k_eager_polls = 100;
constexpr unsigned k_first_pause_us = 10;
constexpr unsigned k_longest_pause_us = 200;

/// Calls `done`, at once at first and then ever further apart, until it says yes or time is up.
template <class Done>
bool poll(Deadline deadline, const Done& done) {
  unsigned pause = k_first_pause_us;
  for (int poll = 0;; ++poll) {
    if (done()) {
      return true;
    }
    if (deadline.passed()) {
      return false;
    }
    if (poll >= k_eager_polls) {
      ::usleep(pause);
      pause = std::min(2 * pause, k_longest_pause_us);
    }
  }
}

/// What a query answers. "Not ready" is no error, though the runtime keeps it as its last one.
cudaError_t answer_of(cudaError_t answer) {
  if (answer == cudaErrorNotReady) {
    static_cast<void>(::cudaGetLastError());
  }
  return answer;
}

class CudaEvent final : public Event::Source {
 public:
  CudaEvent(cudaEvent_t event, CudaStream::Check check) : event_(event), check_(std::move(check)) {}
  ~CudaEvent() override { static_cast<void>(::cudaEventDestroy(event_)); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  bool done() const override { return answer_of(::cudaEventQuery(event_)) != cudaErrorNotReady; }

  Status wait(Deadline deadline) override {
    cudaError_t answer = cudaErrorNotReady;
    if (!poll(deadline, [&] {
          answer = answer_of(::cudaEventQuery(event_));
          return answer != cudaErrorNotReady;
        })) {
      return session_error("a stream of the device did not come to an event in time");
    }
    HEADRACE_TRY(cuda_status(answer, "work of this rank's device failed"));
    return check_ ? check_() : Status();
  }

  void* native_handle() const override { return event_; }

 private:
  cudaEvent_t event_;
  CudaStream::Check check_;
};

}  // namespace

Result<std::unique_ptr<CudaStream>> CudaStream::make(StreamPriority priority, Check check) {
  int lowest = 0;
  int highest = 0;
  HEADRACE_TRY(cuda_status(::cudaDeviceGetStreamPriorityRange(&lowest, &highest),
                           "cannot ask for the priorities of streams"));
  cudaStream_t stream = nullptr;
  HEADRACE_TRY(cuda_status(
      ::cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                     priority == StreamPriority::high ? highest : lowest),
      "cannot make a stream"));
  const auto destroy = [](cudaStream_t made) { static_cast<void>(::cudaStreamDestroy(made)); };
  return std::unique_ptr<CudaStream>(new CudaStream({stream, destroy}, std::move(check)));
}

std::unique_ptr<CudaStream> CudaStream::borrow(cudaStream_t stream, Check check) {
  return std::unique_ptr<CudaStream>(
      new CudaStream({stream, [](cudaStream_t) {}}, std::move(check)));
}

CudaStream::CudaStream(std::shared_ptr<CUstream_st> handle, Check check)
    : handle_(std::move(handle)), check_(std::move(check)) {
  static_cast<void>(::cudaGetDevice(&device_));
}

Status CudaStream::enqueue(const Operation&) {
  return operation_error("an operation of the host was given to a stream of the device");
}

Result<Event> CudaStream::record() {
  const CurrentDevice device(device_);
  cudaEvent_t event = nullptr;
  HEADRACE_TRY(cuda_status(::cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                           "cannot make an event"));
  auto source = std::make_shared<CudaEvent>(event, check_);
  HEADRACE_TRY(cuda_status(::cudaEventRecord(event, handle_.get()), "cannot record an event"));
  return Event(std::move(source));
}

Status CudaStream::wait(Event event, Deadline deadline) {
  auto* native = static_cast<cudaEvent_t>(event.native_handle());
  if (native == nullptr) {
    return event.wait(deadline);
  }
  return cuda_status(::cudaStreamWaitEvent(handle_.get(), native, 0), "cannot wait for an event");
}

bool all_passed(std::span<const std::shared_ptr<CUstream_st>> streams, Deadline deadline) {
  return std::all_of(streams.begin(), streams.end(), [deadline](const auto& stream) {
    return poll(deadline,
                [&] { return answer_of(::cudaStreamQuery(stream.get())) != cudaErrorNotReady; });
  });
}

Result<cudaStream_t> native_stream(const Stream& stream, const char* operation) {
  auto* native = static_cast<cudaStream_t>(stream.native_handle());
  if (native == nullptr) {
    return operation_error(fmt::format(
        "{} on device memory needs a stream of the device, not one of the host", operation));
  }
  return native;
}

}  // namespace headrace
