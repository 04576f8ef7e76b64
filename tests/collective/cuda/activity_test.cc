// What the device is given: copies alone where copy engines carry a collective.

#include "support/cuda/activity.h"

#include <gtest/gtest.h>

#include <thread>

#include "collective/lockstep.h"
#include "support/cuda/cuda_group.h"
#include "support/cuda/taken_multiprocessors.h"
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

/// One rank of an adopted group, whose all-gather is copies and signals alone.
struct Gatherer {
  explicit Gatherer(const Rank& self) : plan(plan_of(self.world_size)) {
    TransportConfig config = self.config;
    config.memory_bytes = plan.end();
    config.control_bytes = plan.control_end();
    transport = self.make(config).value();
    memory = self.memory();
    lockstep =
        Lockstep::make(&plan, transport.get(), self.rank, Milliseconds(20'000), {.streams = 1})
            .value();
    for (std::size_t p = 0; p < shards.size(); ++p) {
      bytes += plan.map(0).landing_bytes(p);
      landings.push_back(memory->allocate(plan.map(0).landing_bytes(p)));
    }
  }
  static LockstepPlan plan_of(int world_size) {
    LockstepOptions options;
    options.adopted = {true};
    const auto topology = Topology::single_node(world_size).value();
    return LockstepPlan::make(topology, even_model(), options, k_page).value();
  }
  Status all_gather() { return lockstep->all_gather(0, shards, landings); }

  LockstepPlan plan;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<DataMemory> memory;
  std::unique_ptr<Lockstep> lockstep;
  std::vector<ShardSource> shards{3};
  std::vector<void*> landings;
  std::size_t bytes = 0;
};

PeerGroup copy_engine_group(int ranks) {
  CudaOptions options;
  options.copies.way = CopyWay::copy_engine;
  return cuda_group(DeviceMemoryKind::mapped, ranks, options);
}

TEST_P(DeviceActivity, an_all_gather_by_copy_engines_launches_no_kernel) {
  run_ranks(copy_engine_group(GetParam()), [](const Rank& self) {
    Gatherer gatherer(self);
    ASSERT_TRUE(gatherer.all_gather());
    const auto activity = record_activity([&] { return gatherer.all_gather(); });
    ASSERT_TRUE(activity) << activity.error().describe();
    EXPECT_TRUE(activity->kernels.empty())
        << activity->kernels.size() << ", the first: " << activity->kernels.front();
    EXPECT_EQ(activity->copied_bytes, gatherer.bytes);
    EXPECT_GE(activity->copies, 1);
    gatherer.transport->liveness().leave();
  });
}

TEST_P(DeviceActivity, an_all_gather_by_copy_engines_ends_while_every_multiprocessor_is_taken) {
  run_ranks(copy_engine_group(GetParam()), [](const Rank& self) {
    Gatherer gatherer(self);
    ASSERT_TRUE(gatherer.all_gather());
    {
      const auto taken = TakenMultiprocessors::make(Milliseconds(20'000));
      ASSERT_TRUE(taken) << taken.error().describe();
      ASSERT_TRUE(gatherer.all_gather());
      EXPECT_TRUE(taken->held());
      const auto passed = taken->lets_a_kernel_through(Milliseconds(200));
      ASSERT_TRUE(passed) << passed.error().describe();
      EXPECT_FALSE(*passed) << "a multiprocessor was free";
    }
    gatherer.transport->liveness().leave();
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
