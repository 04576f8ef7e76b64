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

/// Of them those with `most` ranks at most, for what more ranks do not make harder.
inline std::vector<int> gpu_worlds_up_to(int most) {
  std::vector<int> worlds = gpu_worlds();
  std::erase_if(worlds, [most](int ranks) { return ranks > most; });
  return worlds;
}

}  // namespace headrace::testing
