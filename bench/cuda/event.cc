#include "bench/cuda/event.h"

#include <thread>

namespace headrace::bench {
namespace {

// A sleep would count as time of what is short.
constexpr Milliseconds k_eager{5};
constexpr std::chrono::microseconds k_poll{20};

}  // namespace

Result<OwnedEvent> make_event(bool timing) {
  cudaEvent_t event = nullptr;
  HEADRACE_TRY(cuda_status(
      cudaEventCreateWithFlags(&event, timing ? cudaEventDefault : cudaEventDisableTiming),
      "making an event"));
  return OwnedEvent(event);
}

Status wait_for(cudaEvent_t event, Deadline deadline) {
  const Deadline eager(k_eager);
  for (;;) {
    const cudaError_t answer = cudaEventQuery(event);
    if (answer != cudaErrorNotReady) {
      return cuda_status(answer, "the device's work");
    }
    if (deadline.passed()) {
      return session_error("the device's work was not done in time");
    }
    if (eager.passed()) {
      std::this_thread::sleep_for(k_poll);
    }
  }
}

}  // namespace headrace::bench
