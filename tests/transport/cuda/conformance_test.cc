// Ranks as processes that share one device.

#include "support/cuda/cuda_group.h"
#include "support/cuda/worlds.h"
#include "transport/conformance_suite.h"

namespace headrace::testing {
namespace {

// The rails join two nodes of two ranks.
std::vector<PeerGroup> rail_groups() {
  std::vector<PeerGroup> groups;
  for (const int world_size : gpu_worlds()) {
    if (world_size == 4) {
      groups.push_back(cuda_group(DeviceMemoryKind::mapped, world_size));
    }
  }
  return groups;
}

INSTANTIATE_TEST_SUITE_P(Cuda, Conformance, ::testing::ValuesIn(cuda_groups()));
INSTANTIATE_TEST_SUITE_P(Cuda, RailConformance, ::testing::ValuesIn(rail_groups()));

}  // namespace
}  // namespace headrace::testing
