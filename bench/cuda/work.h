#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>

#include "base/result.h"
#include "runtime/stream.h"

namespace headrace::bench {

/// Computation that communication must not slow down, one launch a call.
struct Work {
  std::string name;
  std::function<Status(cudaStream_t)> enqueue;
};

/// Communication that runs beside it, one unit a call, on a stream of the device.
struct Load {
  std::string name;
  std::function<Status(Stream&)> enqueue;
  std::size_t bytes = 0;    ///< a unit moves; what its pace counts
  std::size_t traffic = 0;  ///< a unit reads from and writes to the device's memory
};

}  // namespace headrace::bench
