// The backends of the host.

#include "transport/conformance_suite.h"

namespace headrace::testing {
namespace {

std::vector<PeerGroup> groups(const std::vector<int>& world_sizes) {
  std::vector<PeerGroup> result;
  for (const Backend backend : backends()) {
    for (const int world_size : world_sizes) {
      result.push_back({.backend = backend, .world_size = world_size});
    }
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(Backends, RailConformance, ::testing::ValuesIn(groups({4})));
INSTANTIATE_TEST_SUITE_P(All, Conformance, ::testing::ValuesIn(groups({1, 2, 3, 4})));

}  // namespace
}  // namespace headrace::testing
