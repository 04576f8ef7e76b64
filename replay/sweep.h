#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "balance/communication_model.h"
#include "base/result.h"
#include "replay/ranks.h"

namespace headrace::replay {

/// Random workloads, each run in both modes, against what `auto` picks for them.
struct SweepConfig {
  int workloads = 100;
  std::uint64_t seed = 0;
  int repeats = 5;      ///< timed steps of each workload in each mode
  int warm_up = 1;      ///< steps left out
  double tie = 0.02;    ///< modes nearer than this are equally right
  int least_ranks = 2;  ///< of every second workload, the others go through those above
  int most_ranks = 8;
  bench::ProcessLimits limits;
};

/// One minibatch, run in both modes with the same microbatches.
struct SweepCase {
  std::string workload;
  int ranks = 0;
  int samples_per_rank = 0;
  int microbatches = 0;      ///< of every rank in lockstep
  double communication = 0;  ///< over compute, in lockstep, as calibrated
  double lockstep_ms = 0;    ///< medians
  double on_demand_ms = 0;
  double predicted_lockstep_ms = 0;
  double predicted_on_demand_ms = 0;
  bool chose_on_demand = false;

  double best_ms() const { return lockstep_ms < on_demand_ms ? lockstep_ms : on_demand_ms; }
  double chosen_ms() const { return chose_on_demand ? on_demand_ms : lockstep_ms; }
};

/// How often a policy picks the faster mode, ties counted as right, and by how much its steps
/// together take longer than those of the faster modes.
struct PolicyScore {
  int right = 0;
  double regret = 0;
};

struct SweepScore {
  int cases = 0;
  int lockstep_faster = 0;  ///< by more than a tie
  int on_demand_faster = 0;
  PolicyScore automatic;
  PolicyScore always_lockstep;
  PolicyScore always_on_demand;
};

SweepScore score(const std::vector<SweepCase>& cases, double tie);

/// Draws the workloads, calibrates each number of ranks once, and runs all. A few minutes.
Result<std::vector<SweepCase>> run_sweep(const SweepConfig& config);

}  // namespace headrace::replay
