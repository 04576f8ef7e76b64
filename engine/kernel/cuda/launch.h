#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <source_location>

#include "base/result.h"
#include "runtime/cuda/cuda_error.h"

namespace headrace {

/// Threads of a block of every kernel that has no pipeline: half of what a multiprocessor holds at
/// 64 registers a thread, so that a block finds room beside computation.
constexpr unsigned k_block_threads = 512;
constexpr unsigned k_block_warps = k_block_threads / 32;
/// Blocks that a multiprocessor is to hold of them.
constexpr unsigned k_blocks_per_multiprocessor = 2;

/// Blocks for `tiles` tiles of a warp each: no more than have work, nor than `most`.
inline unsigned blocks_for(std::size_t tiles, int most) {
  const std::size_t needed = (tiles + k_block_warps - 1) / k_block_warps;
  return static_cast<unsigned>(std::min<std::size_t>(needed, std::max(most, 1)));
}

/// An attribute of the calling thread's current device.
inline Result<int> device_attribute(cudaDeviceAttr attribute) {
  int device = 0;
  HEADRACE_TRY(cuda_status(cudaGetDevice(&device), "reading the current device"));
  int value = 0;
  HEADRACE_TRY(cuda_status(cudaDeviceGetAttribute(&value, attribute, device),
                           "reading an attribute of the device"));
  return value;
}

/// What the calling thread's current device can: 90 for compute capability 9.0.
inline Result<int> compute_capability() {
  HEADRACE_TRY_ASSIGN(const int major, device_attribute(cudaDevAttrComputeCapabilityMajor));
  HEADRACE_TRY_ASSIGN(const int minor, device_attribute(cudaDevAttrComputeCapabilityMinor));
  return 10 * major + minor;
}
/// The first with bulk copies, clusters and multicast.
constexpr int k_hopper = 90;

/// Blocks of a cluster.
constexpr unsigned k_pair = 2;

struct LaunchShape {
  unsigned blocks = 1;
  unsigned threads = k_block_threads;
  std::size_t shared_bytes = 0;
};

/// Launches a kernel, in pairs of blocks where their number is even: a pair takes two neighbouring
/// multiprocessors, so that computation whose own blocks come in pairs finds the others in pairs.
/// `what` names the kernel in an error.
template <class... Parameters, class... Arguments>
Status launch(const char* what, cudaStream_t stream, const LaunchShape& shape,
              void (*kernel)(Parameters...), const Arguments&... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(shape.blocks);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute pairs = {};
  if (shape.blocks % k_pair == 0) {
    HEADRACE_TRY_ASSIGN(const int clusters, device_attribute(cudaDevAttrClusterLaunch));
    pairs.id = cudaLaunchAttributeClusterDimension;
    pairs.val.clusterDim = {k_pair, 1, 1};
    config.attrs = &pairs;
    config.numAttrs = clusters != 0 ? 1 : 0;
  }
  return cuda_status(cudaLaunchKernelEx(&config, kernel, arguments...), what);
}

}  // namespace headrace
