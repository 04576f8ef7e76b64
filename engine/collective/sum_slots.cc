#include "collective/sum_slots.h"

#include <algorithm>

#include "kernel/accumulate.h"

namespace headrace {
namespace {

void sum_parameter(const OnDemand& on_demand, std::size_t group, std::size_t parameter,
                   const std::vector<std::vector<std::uint64_t>>& touched_by) {
  const OnDemandPlan& plan = on_demand.plan;
  const auto rows_in = [&](std::size_t slot) {
    return reinterpret_cast<float*>(on_demand.transport.memory() +
                                    plan.accumulator_offset(group, slot) +
                                    plan.map(group).accumulator_offset(parameter));
  };
  std::vector<const float*> addends;
  for (std::size_t slot = 1; slot < plan.slots(); ++slot) {
    if (plan.touches(touched_by[slot], group, parameter)) {
      addends.push_back(rows_in(slot));
    }
  }
  // Chunk by chunk, so that each chunk of the sum is read and written once.
  float* const sum = rows_in(0);
  const std::size_t count = plan.map(group).shard_elements(parameter, on_demand.rank);
  const std::size_t chunk = plan.chunk_bytes() / sizeof(float);
  for (std::size_t begin = 0; begin < count; begin += chunk) {
    for (const float* addend : addends) {
      accumulate(sum + begin, addend + begin, DType::float32, std::min(chunk, count - begin));
    }
  }
}

}  // namespace

Status sum_slots(const OnDemand& on_demand,
                 const std::vector<std::vector<std::uint64_t>>& touched_by) {
  if (on_demand.plan.slots_are_shared()) {
    return {};
  }
  return on_demand.stream.enqueue([on_demand, &touched_by]() -> Status {
    for (std::size_t group = 0; group < on_demand.plan.groups(); ++group) {
      for (std::size_t p = 0; p < on_demand.plan.map(group).parameters(); ++p) {
        sum_parameter(on_demand, group, p, touched_by);
      }
    }
    return {};
  });
}

}  // namespace headrace
