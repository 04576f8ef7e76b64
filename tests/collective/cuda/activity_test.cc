// What the device is given: copies alone where copy engines carry a collective.

#include "support/cuda/activity.h"

#include <gtest/gtest.h>

#include <thread>

#include "collective/lockstep.h"
#include "support/cuda/cuda_group.h"
#include "support/cuda/worlds.h"

namespace headrace::testing {
namespace {

constexpr std::int64_t k_rows = 4096;
constexpr std::int64_t k_row_elements = 256;

ModelSpec even_model() {
  ModelSpec model{.groups = {{.name = "layer"}}};
  for (const char* name : {"a", "b", "c"}) {
    model.groups[0].parameters.push_back(
        {.name = name, .rows = k_rows, .row_elements = k_row_elements, .dtype = DType::bfloat16});
  }
  return model;
}

class DeviceActivity : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { skip_unless_runnable(cuda_group(DeviceMemoryKind::mapped, GetParam())); }
};

TEST_P(DeviceActivity, an_all_gather_by_copy_engines_launches_no_kernel) {
  CudaOptions options;
  options.copies.way = CopyWay::copy_engine;
  const PeerGroup group = cuda_group(DeviceMemoryKind::mapped, GetParam(), options);
  run_ranks(group, [](const Rank& self) {
    LockstepOptions lockstep_options;
    lockstep_options.adopted = {true};
    const auto topology = Topology::single_node(self.world_size).value();
    const auto plan = LockstepPlan::make(topology, even_model(), lockstep_options, k_page).value();
    TransportConfig config = self.config;
    config.memory_bytes = plan.end();
    config.control_bytes = plan.control_end();
    const auto transport = self.make(config).value();
    const auto memory = self.memory();
    const auto lockstep =
        Lockstep::make(&plan, transport.get(), self.rank, Milliseconds(20'000), {.streams = 1})
            .value();
    const std::vector<ShardSource> shards(3);
    std::vector<void*> landings;
    std::size_t bytes = 0;
    for (std::size_t p = 0; p < shards.size(); ++p) {
      bytes += plan.map(0).landing_bytes(p);
      landings.push_back(memory->allocate(plan.map(0).landing_bytes(p)));
    }
    ASSERT_TRUE(lockstep->all_gather(0, shards, landings));
    const auto activity =
        record_activity([&] { return lockstep->all_gather(0, shards, landings); });
    ASSERT_TRUE(activity) << activity.error().describe();
    EXPECT_TRUE(activity->kernels.empty())
        << activity->kernels.size() << ", the first: " << activity->kernels.front();
    EXPECT_EQ(activity->copied_bytes, bytes);
    EXPECT_GE(activity->copies, 1);
    transport->liveness().leave();
  });
}

TEST_P(DeviceActivity, a_stream_that_waits_for_a_peer_runs_no_kernel) {
  PeerGroup group = cuda_group(DeviceMemoryKind::mapped, GetParam());
  constexpr std::size_t k_signal = 4096;
  group.control_bytes = 2 * k_signal;
  run_ranks(group, [](const Rank& self) {
    const auto transport = self.transport().value();
    const auto stream = transport->make_stream().value();
    const int before = (self.rank + self.world_size - 1) % self.world_size;
    const int after = (self.rank + 1) % self.world_size;
    InlineStream host;
    const auto activity = record_activity([&]() -> Status {
      HEADRACE_TRY(transport->channel(before).wait(*stream, k_signal, 1, "greeting"));
      HEADRACE_TRY_ASSIGN(Event passed, stream->record());
      std::this_thread::sleep_for(Milliseconds(200));
      HEADRACE_TRY(transport->channel(after).signal(host, k_signal, 1));
      return passed.wait(Deadline(Milliseconds(20'000)));
    });
    ASSERT_TRUE(activity) << activity.error().describe();
    EXPECT_TRUE(activity->kernels.empty());
    transport->liveness().leave();
  });
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceActivity, ::testing::ValuesIn(gpu_worlds()));

}  // namespace
}  // namespace headrace::testing
