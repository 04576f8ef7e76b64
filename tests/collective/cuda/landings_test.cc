// One landing that two groups share, written and read by different streams: nothing but its events
// keeps them apart.

#include "collective/landings.h"

#include <gtest/gtest.h>

#include "collective/lockstep_caller.h"
#include "runtime/cuda/cuda_error.h"
#include "runtime/cuda/cuda_stream.h"
#include "support/cuda/cuda_group.h"
#include "support/cuda/worlds.h"

namespace headrace::testing {
namespace {

constexpr Milliseconds k_limit{20'000};

/// What computation read: as late as the device got to it.
std::vector<void*> read_on(CudaStream& compute, Caller& caller, std::size_t group,
                           const Landings::Parameters& used) {
  EXPECT_TRUE(compute.wait(used.ready, Deadline(k_limit)));
  auto* stream = static_cast<cudaStream_t>(compute.native_handle());
  std::vector<void*> copies;
  for (std::size_t p = 0; p < used.parameters.size(); ++p) {
    const std::size_t bytes = caller.plan().map(group).landing_bytes(p);
    copies.push_back(caller.memory().allocate(bytes));
    const Status status = cuda_status(::cudaMemcpyAsync(copies.back(), used.parameters[p], bytes,
                                                        cudaMemcpyDeviceToDevice, stream),
                                      "read a landing");
    EXPECT_TRUE(status) << status.error().describe();
  }
  return copies;
}

class DeviceLandings : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { skip_unless_runnable(cuda_group(DeviceMemoryKind::mapped, GetParam())); }
};

TEST_P(DeviceLandings, are_written_when_free_and_read_when_ready) {
  const PeerGroup group = cuda_group(DeviceMemoryKind::mapped, GetParam());
  run_ranks(group, [](const Rank& self) {
    Caller caller(self, {.nodes = 1, .local_ranks = self.world_size}, small_chunks());
    const auto compute = CudaStream::make(StreamPriority::low, {}).value();
    std::vector<AddressMap> maps;
    std::vector<SlotGroup> groups;
    for (std::size_t g = 0; g < 2; ++g) {
      maps.push_back(caller.plan().map(g));
      groups.push_back({.name = caller.spec(g).name, .bytes = Landings::bytes(maps.back())});
    }
    const auto plan = SlotPlan::make(groups, {.ring_slots = 1}).value();
    const auto landings = Landings::make(&plan, maps, &caller.transport()).value();
    struct Read {
      std::size_t group;
      int round;
      std::vector<void*> copies;
    };
    std::vector<Read> reads;
    for (int round = 0; round < 6; ++round) {
      for (std::size_t g = 0; g < 2; ++g) {
        const auto shards = caller.write_shards(g, round);
        const auto place = landings->begin(g);
        ASSERT_TRUE(place) << place.error().describe();
        auto milestones =
            caller.lockstep().start_all_gather(g, shards, place->parameters, place->free);
        ASSERT_TRUE(milestones) << milestones.error().describe();
        landings->landed(g, (*milestones)[static_cast<std::size_t>(Milestone::parameters_ready)]);
        const auto used = landings->use(g);
        ASSERT_TRUE(used);
        reads.push_back(
            {.group = g, .round = round, .copies = read_on(*compute, caller, g, *used)});
        landings->release(g, compute->record().value());
        // The shards may be written again; nothing else has been waited for.
        ASSERT_TRUE(
            (*milestones)[static_cast<std::size_t>(Milestone::shard_read)].wait(Deadline(k_limit)));
      }
    }
    ASSERT_TRUE(compute->record().value().wait(Deadline(k_limit)));
    for (const Read& read : reads) {
      caller.expect_landed(read.group, read.round, read.copies);
    }
    caller.leave();
  });
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceLandings, ::testing::ValuesIn(gpu_worlds()));

}  // namespace
}  // namespace headrace::testing
