#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace headrace::testing {

/// A stream of the current device that has passed nothing until it is let go, as one that waits for
/// a peer. It is let go at the latest when this goes.
class HeldStream {
 public:
  HeldStream();
  ~HeldStream();
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;

  cudaStream_t handle() const { return stream_; }
  void let_go();

 private:
  std::uint64_t* word_ = nullptr;  ///< of the host, seen by the device
  cudaStream_t stream_ = nullptr;
};

}  // namespace headrace::testing
