#pragma once

#include <cuda_runtime_api.h>

namespace headrace {

/// A device as the calling thread's current one, for as long as this lives: what belongs to a
/// device is made on it, whichever thread makes it and whatever that thread works on.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) : device_(device) {
    if (::cudaGetDevice(&before_) != cudaSuccess || before_ != device_) {
      static_cast<void>(::cudaSetDevice(device_));  // what is then called on it says what is wrong
    }
  }
  ~CurrentDevice() {
    if (before_ >= 0 && before_ != device_) {
      static_cast<void>(::cudaSetDevice(before_));
    }
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int device_;
  int before_ = -1;
};

}  // namespace headrace
