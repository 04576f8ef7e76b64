#include <algorithm>
#include <utility>

#include "bench/lockstep_bench.h"
#include "collective/packed_baseline.h"
#include "kernel/cast.h"
#include "kernel/sum.h"
#include "plan/lockstep_memory.h"

namespace headrace::bench {
namespace {

// Every rank gives the same small integers, so the sum is exact.
bool is_sum(std::span<const float> output, const RankTensors& tensors, const RankPlan& plan) {
  const AddressMap& map = tensors.map();
  for (std::size_t p = 0; p < map.parameters(); ++p) {
    std::vector<float> one(map.shard_elements(p, plan.rank));
    cast(one.data(), DType::float32, tensors.shards()[p].address, tensors.shards()[p].dtype,
         one.size());
    const float* sum = output.data() + map.accumulator_offset(p) / sizeof(float);
    for (std::size_t i = 0; i < one.size(); ++i) {
      if (sum[i] != one[i] * static_cast<float>(plan.world_size)) {
        return false;
      }
    }
  }
  return true;
}

// Adds up N equal parts of each of the rank's own gradients.
void sum_own_parts(std::span<float> output, const RankTensors& tensors, int world_size) {
  const AddressMap& map = tensors.map();
  for (const GradientSource& gradient : tensors.gradients()) {
    const std::size_t item = item_size(gradient.dtype);
    const std::size_t part =
        map.landing_bytes(gradient.parameter) / item / static_cast<std::size_t>(world_size);
    std::vector<Summand> summands;
    for (std::size_t i = 0; i < static_cast<std::size_t>(world_size); ++i) {
      summands.push_back(
          {.values = static_cast<const std::byte*>(gradient.address) + i * part * item,
           .dtype = gradient.dtype});
    }
    sum(output.data() + map.accumulator_offset(gradient.parameter) / sizeof(float), summands, part,
        1.0F, false);
  }
}

}  // namespace

Result<std::vector<Spans>> reduce_scatter_bench(const RankPlan& plan) {
  HEADRACE_TRY_ASSIGN(auto connected, connect_lockstep(plan));
  HEADRACE_TRY_ASSIGN(
      const Wired wired,
      wire(plan, std::move(connected), PackedBaseline::memory_bytes(plan.group, plan.world_size)));
  Session& session = *wired.session;
  RankTensors tensors(plan.group, plan.rank, plan.world_size, {.landings = false});
  PackedBaseline baseline(plan.group, plan.rank, plan.world_size, wired.baseline.get());
  std::vector<float> output(tensors.map().accumulator_bytes() / sizeof(float));

  const auto check = [&]() -> Status {
    if (!is_sum(output, tensors, plan)) {
      return session_error("a reduce-scatter brought a wrong sum");
    }
    std::fill(output.begin(), output.end(), -1.0F);
    return {};
  };
  const std::vector<Arm> arms{
      {.name = "reduce_scatter",
       .run =
           [&] {
             return session.reduce_scatter(0, tensors.gradients(), output.data(), 1.0F, false);
           },
       .prepare = nullptr},
      {.name = "packed_baseline",
       .run = [&] { return baseline.reduce_scatter(tensors.gradients(), output); },
       .prepare = check},
      {.name = "limit",
       .run = [&]() -> Status {
         sum_own_parts(output, tensors, plan.world_size);
         return {};
       },
       .prepare = check}};
  return run_wired(plan, wired, tensors, arms, [] { return Status(); });
}

Result<StagingMemory> staging_memory(const RankPlan& plan) {
  HEADRACE_TRY_ASSIGN(const Topology topology, Topology::single_node(plan.world_size));
  std::vector<DType> gradients;
  for (const ParameterSpec& parameter : plan.group.parameters) {
    gradients.push_back(parameter.dtype);
  }
  ReduceScatterOptions options = plan.reduce_scatter;
  options.gradients = gradients;
  HEADRACE_TRY_ASSIGN(const ScheduleShape shape,
                      reduce_scatter_shape(topology, plan.group, options));
  const AddressMap map(plan.group, plan.world_size);
  const std::size_t elements = map.accumulator_bytes() / sizeof(float);
  HEADRACE_TRY_ASSIGN(const WavePlan waves,
                      WavePlan::make(topology, {.width = topology.local_ranks(),
                                                .transfers = options.transfers,
                                                .passes = options.passes}));
  HEADRACE_TRY_ASSIGN(const LockstepMemory memory,
                      lockstep_memory(waves, {.shard_elements = elements,
                                              .gather = gradients.front(),
                                              .gradient = gradients.front(),
                                              .staging_slots = options.staging_slots,
                                              .mode = options.mode}));
  std::size_t used = 0;
  for (const Region region : {Region::staging, Region::outbox, Region::inbox, Region::spare}) {
    used += shape[region].total();
  }
  const auto output = static_cast<double>(map.accumulator_bytes());
  return StagingMemory{.used = static_cast<double>(used) / output,
                       .bound = static_cast<double>(memory.reduce_scatter_bound) / output};
}

}  // namespace headrace::bench
