#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>

#include "base/clock.h"
#include "runtime/cuda/cuda_error.h"

namespace headrace::bench {

struct DestroyEvent {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
/// Of the current device.
using OwnedEvent = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;
Result<OwnedEvent> make_event(bool timing);

/// Error where the event has not happened by the deadline. The host polls.
Status wait_for(cudaEvent_t event, Deadline deadline);

}  // namespace headrace::bench
