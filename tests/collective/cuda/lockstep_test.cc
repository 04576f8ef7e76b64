// Ranks as processes that share one device.

#include "collective/lockstep_suite.h"
#include "support/cuda/cuda_group.h"
#include "support/cuda/worlds.h"

namespace headrace::testing {
namespace {

// Every way in which so many ranks stand as nodes.
std::vector<World> worlds_of(int ranks) {
  std::vector<World> worlds;
  for (int nodes = 1; nodes <= ranks; ++nodes) {
    if (ranks % nodes == 0) {
      worlds.push_back({.nodes = nodes, .local_ranks = ranks / nodes});
    }
  }
  return worlds;
}

std::vector<WorldCase> device_cases() {
  std::vector<WorldCase> result;
  for (const int ranks : gpu_worlds()) {
    for (WorldCase& given : cases(cuda_group(DeviceMemoryKind::mapped, ranks), worlds_of(ranks))) {
      result.push_back(std::move(given));
    }
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(Cuda, LockstepTest, ::testing::ValuesIn(device_cases()),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace headrace::testing
