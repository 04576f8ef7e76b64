#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace headrace::bench {

/// Where the ranks of one host run.
enum class Placement {
  pinned,  ///< each on one core, in turn
  free,    ///< where the kernel puts them
};

/// What bounds a run of forked ranks.
struct ProcessLimits {
  Milliseconds all{300'000};           ///< for every rank to be done
  Milliseconds after_failure{10'000};  ///< for the others to end by themselves once one has failed
};

/// Runs `body(rank)` in a forked process a rank and returns what each gave, by rank. Error of the
/// rank that failed first, of those that failed over a peer only where no other did, or naming one
/// that was not done in time; every rank has ended then.
/// Ranks die with the process that forked them.
Result<std::vector<std::string>> run_rank_processes(
    int ranks, Placement placement, ProcessLimits limits,
    const std::function<Result<std::string>(int rank)>& body);

}  // namespace headrace::bench
