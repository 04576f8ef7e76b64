#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>

#include "base/clock.h"
#include "runtime/cuda/cuda_error.h"

namespace headrace::bench {

struct DestroyStream {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};
/// Of the current device; independent of the default stream.
using OwnedStream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, DestroyStream>;
Result<OwnedStream> make_stream();

struct DestroyEvent {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
using OwnedEvent = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;
Result<OwnedEvent> make_event(bool timing);

/// Error where the event has not happened by the deadline. The host polls.
Status wait_for(cudaEvent_t event, Deadline deadline);

}  // namespace headrace::bench
