#pragma once

#include <functional>
#include <vector>

#include "base/clock.h"
#include "bench/arms.h"

namespace headrace::bench {

/// Runs `body(rank)` in a forked process a rank, each pinned to one core in turn, and returns every
/// arm and round over all ranks. Error where a rank fails, or is not done within `limit`; all ranks
/// have ended then.
Result<std::vector<Samples>> fork_ranks(
    int ranks, Milliseconds limit, const std::function<Result<std::vector<Spans>>(int rank)>& body);

}  // namespace headrace::bench
