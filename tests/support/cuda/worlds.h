#pragma once

#include <cstdlib>
#include <vector>

namespace headrace::testing {

/// World sizes that a test program runs: the one in HEADRACE_GPU_RANKS where that is set, since
/// each rank's share of the GPU under MPS is set for it by scripts/gpu.sh; otherwise all.
inline std::vector<int> gpu_worlds() {
  const char* ranks = std::getenv("HEADRACE_GPU_RANKS");
  return ranks == nullptr ? std::vector{1, 2, 4, 8} : std::vector{std::atoi(ranks)};
}

}  // namespace headrace::testing
