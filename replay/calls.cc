#include "replay/calls.h"

#include "collective/packed_baseline.h"
#include "replay/decoder.h"
#include "session/config.h"

namespace headrace::replay {
Result<std::unique_ptr<Calls>> make_calls(Way way, const CallsConfig& config, Tensors& tensors) {
  switch (way) {
    case Way::packed:
      return make_packed_calls(config, tensors);
    case Way::lockstep:
      return make_lockstep_calls(config, tensors);
    case Way::on_demand:
      break;
  }
  return make_on_demand_calls(config, tensors);
}

std::size_t exchanges_of(Way way) { return way == Way::packed ? 2 : 1; }

Result<std::size_t> shared_bytes(Way way, const ModelSpec& model, int world_size) {
  HEADRACE_TRY_ASSIGN(const Topology topology, Topology::single_node(world_size));
  const SessionConfig config;
  switch (way) {
    case Way::packed:
      return PackedBaseline::memory_bytes(model.groups[k_root], world_size) +
             PackedBaseline::memory_bytes(model.groups[k_root + 1], world_size);
    case Way::lockstep: {
      HEADRACE_TRY_ASSIGN(const LockstepPlan plan,
                          LockstepPlan::make(topology, model, config.lockstep, k_page));
      return plan.end();
    }
    case Way::on_demand:
      break;
  }
  return OnDemandPlan(topology, model, config.chunk_bytes, config.accumulate).bytes();
}

}  // namespace headrace::replay
