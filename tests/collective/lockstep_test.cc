// On the backends of the host.

#include "collective/lockstep_suite.h"

namespace headrace::testing {
namespace {

std::vector<WorldCase> host_cases() {
  std::vector<WorldCase> result;
  for (const Backend backend : backends()) {
    for (WorldCase& given :
         cases({.backend = backend},
               {{1, 1}, {1, 2}, {1, 3}, {1, 4}, {2, 2}, {3, 2}, {4, 2}, {5, 1}, {2, 4}})) {
      result.push_back(std::move(given));
    }
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(Worlds, LockstepTest, ::testing::ValuesIn(host_cases()),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace headrace::testing
