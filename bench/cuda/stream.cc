#include "bench/cuda/stream.h"

#include <thread>

namespace headrace::bench {
namespace {

constexpr std::chrono::microseconds k_poll{20};

}  // namespace

Result<OwnedStream> make_stream() {
  cudaStream_t stream = nullptr;
  HEADRACE_TRY(
      cuda_status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream"));
  return OwnedStream(stream);
}

Result<OwnedEvent> make_event(bool timing) {
  cudaEvent_t event = nullptr;
  HEADRACE_TRY(cuda_status(
      cudaEventCreateWithFlags(&event, timing ? cudaEventDefault : cudaEventDisableTiming),
      "making an event"));
  return OwnedEvent(event);
}

Status wait_for(cudaEvent_t event, Deadline deadline) {
  for (;;) {
    const cudaError_t answer = cudaEventQuery(event);
    if (answer != cudaErrorNotReady) {
      return cuda_status(answer, "the device's work");
    }
    if (deadline.passed()) {
      return session_error("the device's work was not done in time");
    }
    std::this_thread::sleep_for(k_poll);
  }
}

}  // namespace headrace::bench
