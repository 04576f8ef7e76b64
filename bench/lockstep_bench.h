#pragma once

#include <cstddef>
#include <vector>

#include "bench/wiring.h"

namespace headrace::bench {

/// Arms, in order: all_gather (ours), the shards in the arena, so that nothing is copied in;
/// packed_baseline, copy-in and copy-out included; limit, a flat streaming-store copy of the same
/// bytes from the same memory by as many processes; then the plan's peers. Checks what ours and the
/// baseline bring in the warm-up.
Result<std::vector<Spans>> all_gather_bench(const RankPlan& plan);

/// Arms, in order: reduce_scatter (ours); packed_baseline; limit, what must be read and written at
/// the least: one pass of the sum kernel, on private memory, over as many gradient bytes into as
/// many output bytes; then peers. Checks the sums of ours and of the baseline in every round.
Result<std::vector<Spans>> reduce_scatter_bench(const RankPlan& plan);

/// One rank's memory for reduce-scatters, over the bytes of its fp32 output.
struct StagingMemory {
  double used = 0;   ///< all regions from staging to spare
  double bound = 0;  ///< the closed form of `lockstep_memory`
};
Result<StagingMemory> staging_memory(const RankPlan& plan);

/// What planning one rank's programs takes, and how large they are.
struct PlanningCase {
  int nodes = 64;
  int local_ranks = 8;
  GroupSpec group;
  int rounds = 15;
};
struct PlanningResult {
  std::vector<double> all_gather_ms;
  std::vector<double> reduce_scatter_ms;
  std::size_t all_gather_ops = 0;
  std::size_t reduce_scatter_ops = 0;
};
Result<PlanningResult> planning_bench(const PlanningCase& planning);

}  // namespace headrace::bench
