#pragma once

// What tests of whole worlds on devices have in common.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <functional>

#include "support/cuda/cuda_group.h"
#include "support/cuda/worlds.h"

namespace headrace::testing {

/// Where the tests' signals lie, one a rank and number, and where device memory begins.
inline constexpr std::size_t k_device_signals = 4096;
inline constexpr std::size_t k_device_control = 16384;

inline std::size_t device_signal(int rank, int number = 0) {
  constexpr int k_numbers = 64;
  return k_device_signals + static_cast<std::size_t>(rank * k_numbers + number) * 16;
}

/// Ranks that share the device, in time.
inline PeerGroup device_world(int ranks, const CudaOptions& options = {}) {
  PeerGroup group = cuda_group(DeviceMemoryKind::mapped, ranks, options);
  group.control_bytes = k_device_control;
  group.memory_bytes = k_device_control + (1 << 16);
  group.limit = Milliseconds(40'000);
  return group;
}

/// That the device still works for this process: a lost context fails all that comes after.
inline void expect_device_works() {
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 1), cudaSuccess);
  EXPECT_EQ(cudaMemset(memory, 0, 1), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

/// The status of what the stream was given, once it has passed.
inline Status passed(Stream& stream, Milliseconds limit = Milliseconds(20'000)) {
  HEADRACE_TRY_ASSIGN(Event event, stream.record());
  return event.wait(Deadline(limit));
}

/// A world of ranks, 1 to 8 as scripts/gpu.sh says.
class DeviceWorldTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { skip_unless_runnable(device_world(GetParam())); }
};

}  // namespace headrace::testing
