#include "base/clock.h"
#include "bench/lockstep_bench.h"
#include "plan/all_gather_plan.h"
#include "plan/lockstep_plan.h"

namespace headrace::bench {

Result<PlanningResult> planning_bench(const PlanningCase& planning) {
  HEADRACE_TRY_ASSIGN(const Topology topology,
                      Topology::make(planning.nodes, planning.local_ranks));
  ReduceScatterOptions reduce_scatter;
  for (const ParameterSpec& parameter : planning.group.parameters) {
    reduce_scatter.gradients.push_back(parameter.dtype);
  }
  PlanningResult result;
  const auto since = [](std::int64_t begin) { return static_cast<double>(now_ns() - begin) / 1e6; };
  for (int round = 0; round < planning.rounds; ++round) {
    // Another rank every time: programs of other nodes and local ranks differ.
    const int rank = round % topology.world_size();
    std::int64_t begin = now_ns();
    result.all_gather_ops = all_gather_program(topology, planning.group, {}, rank).ops.size();
    result.all_gather_ms.push_back(since(begin));
    begin = now_ns();
    HEADRACE_TRY_ASSIGN(const RankProgram program,
                        reduce_scatter_program(topology, planning.group, reduce_scatter, rank));
    result.reduce_scatter_ops = program.ops.size();
    result.reduce_scatter_ms.push_back(since(begin));
  }
  return result;
}

}  // namespace headrace::bench
