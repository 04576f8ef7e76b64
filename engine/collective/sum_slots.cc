#include "collective/sum_slots.h"

#include <utility>

#include "kernel/kernels.h"

namespace headrace {

Status sum_slots(const OnDemand& on_demand,
                 const std::vector<std::vector<std::uint64_t>>& touched_by) {
  const OnDemandPlan& plan = on_demand.plan;
  if (plan.slots_are_shared()) {
    return {};
  }
  std::vector<FoldJob> jobs;
  for (std::size_t group = 0; group < plan.groups(); ++group) {
    const AddressMap& map = plan.map(group);
    for (std::size_t p = 0; p < map.parameters(); ++p) {
      const auto rows_in = [&](std::size_t slot) {
        return reinterpret_cast<float*>(on_demand.transport.at(
            plan.accumulator_offset(group, slot) + map.accumulator_offset(p)));
      };
      FoldJob job{.to = rows_in(0), .addends = {}, .count = map.shard_elements(p, on_demand.rank)};
      for (std::size_t slot = 1; slot < plan.slots(); ++slot) {
        if (plan.touches(touched_by[slot], group, p)) {
          job.addends.push_back(rows_in(slot));
        }
      }
      if (job.count > 0 && !job.addends.empty()) {
        jobs.push_back(std::move(job));
      }
    }
  }
  return on_demand.transport.kernels().fold(on_demand.stream, std::move(jobs));
}

}  // namespace headrace
