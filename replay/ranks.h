#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/rank_processes.h"
#include "plan/model_spec.h"
#include "replay/times.h"
#include "replay/way.h"

namespace headrace::replay {

/// One minibatch as ranks run it: [rank][microbatch] nanoseconds of compute, 0 for a filler.
using Minibatch = std::vector<std::vector<std::int64_t>>;

/// One way of running the same minibatches. Other than on demand, all ranks have as many
/// microbatches.
struct Arm {
  std::string name;
  Way way = Way::on_demand;
  std::vector<Minibatch> minibatches;
};

struct Run {
  int ranks = 1;
  ModelSpec model;
  std::vector<Arm> arms;   ///< as many minibatches each
  int warm_up = 1;         ///< steps left out, the first minibatches over again
  bool on_worker = false;  ///< communication beside compute
  bench::Placement placement = bench::Placement::free;
  bench::ProcessLimits limits;
  /// Called on every rank before every step; an error ends the run. For tests; may be empty.
  std::function<Status(int rank, int step)> before_step;
};

/// Runs every arm's minibatches in turn, step by step, on forked ranks over shared memory, so that
/// what disturbs the machine disturbs all arms alike. All ranks line up before each step. In the
/// first step of each way every byte gathered and every sum is checked.
Result<std::vector<ArmTimes>> run_ranks(const Run& run);

/// Of all ranks: tensors and shared memory of every way that the arms use.
Result<std::size_t> memory_bytes(const Run& run);

}  // namespace headrace::replay
