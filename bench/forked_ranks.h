#pragma once

#include <functional>
#include <vector>

#include "base/clock.h"
#include "bench/arms.h"

namespace headrace::bench {

/// Runs `body(rank)` in a forked process a rank, each pinned to one core in turn, and returns for
/// every arm and round the slowest rank's time. Error where a rank fails, or is not done within
/// `limit`; all ranks have ended then.
Result<std::vector<Samples>> fork_ranks(
    int ranks, Milliseconds limit,
    const std::function<Result<std::vector<Samples>>(int rank)>& body);

/// The slowest rank's time of every arm and round.
std::vector<Samples> slowest(const std::vector<std::vector<Samples>>& by_rank);

}  // namespace headrace::bench
