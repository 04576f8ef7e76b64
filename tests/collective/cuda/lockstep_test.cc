// Ranks as processes that share one device. A start of them takes seconds, so that one does for
// all that needs no options of its own.

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

class DeviceLockstep : public LockstepTest {};

TEST_P(DeviceLockstep, does_what_it_does_on_the_host) {
  with_caller([](Caller& caller) {
    plan_nothing_more(caller);
    gather_call_after_call(caller);
    reduce_call_after_call(caller);
    take_turns(caller);
    alternate(caller);
    reduce_one_parameter(caller);
    reduce_infinities(caller);
  });
}

TEST_P(DeviceLockstep, does_the_same_on_two_streams) {
  with_caller(
      [](Caller& caller) {
        take_turns(caller);
        alternate(caller);
      },
      {.streams = 2});
}

TEST_P(DeviceLockstep, knobs_and_streams_change_no_bit) { expect_knobs_change_no_bit(3); }

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceLockstep, ::testing::ValuesIn(device_cases()),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace headrace::testing
