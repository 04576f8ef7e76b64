#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "runtime/cuda/cuda_error.h"

namespace headrace::bench {

/// Memory of the current device, 256-byte aligned; not initialised.
class DeviceBuffer {
 public:
  static Result<DeviceBuffer> make(std::size_t bytes) {
    void* data = nullptr;
    HEADRACE_TRY(cuda_status(cudaMalloc(&data, bytes), "memory of the device for a benchmark"));
    return DeviceBuffer(data, bytes);
  }
  void* data() const { return data_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(void* data) const { cudaFree(data); }
  };
  DeviceBuffer(void* data, std::size_t bytes) : data_(data), bytes_(bytes) {}

  std::unique_ptr<void, Free> data_;
  std::size_t bytes_;
};

}  // namespace headrace::bench
