#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "bench/arms.h"

namespace headrace::bench {

struct LandingOptions {
  int ranks = 4;                                  ///< processes, all on the current device
  std::vector<int> shard_mib{1, 4, 16, 64, 128};  ///< a rank's part of the group
  Rounds rounds{.warm_up = 3, .timed = 15};
  int streams = 4;              ///< of the arm that shares copies among streams
  Milliseconds limit{120'000};  ///< for a size
};

/// Ways of landing one group of 30 bf16 tensors at one size, all ranks at once.
struct LandingCase {
  int ranks = 0;
  int shard_mib = 0;
  std::size_t descriptors = 0;  ///< copies a rank
  std::vector<Samples> arms;
};

/// Arms: `automatic` (what a channel does), `engine`, `engine_streams`, `engine_graph`, `kernel`
/// (the blocks of `CopyChoice`), `kernel_full` (a block and more a multiprocessor), `packed` (flat
/// gather into a rank-major buffer, then a copy-out by a full grid), and two that bound the
/// engines: `flat` (one copy an owner) and `descriptors` (as many copies, of a cache line each).
/// Landings are compared with what was published.
Result<LandingCase> run_landing_case(const LandingOptions& options, int shard_mib);

std::string to_text(const LandingCase& one);
/// One JSON object in one line.
std::string to_json(const LandingCase& one);

}  // namespace headrace::bench
