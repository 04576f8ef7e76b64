#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "bench/arms.h"
#include "bench/bench_group.h"
#include "session/session.h"

namespace headrace::bench {

/// How a benchmark is run on one rank. Each wiring needs an exchange of its own.
struct RankPlan {
  int rank = 0;
  int world_size = 1;
  GroupSpec group;
  Rounds rounds;
  std::size_t chunk_bytes = SessionConfig{}.chunk_bytes;  ///< of accumulators under one lock
  ReduceScatterOptions reduce_scatter = {};               ///< lockstep
  std::function<Exchange()> next_exchange;
  std::vector<std::function<Arm(RankTensors&)>>
      peers;  ///< further arms, such as another library's collective
};

/// A session over shm, on demand or in lockstep with its shards in the arena.
Result<std::unique_ptr<Session>> connect(const RankPlan& plan, Accumulation accumulate);
Result<std::unique_ptr<Session>> connect_lockstep(const RankPlan& plan);

/// A session and a second transport, for the baseline. Behind the baseline's own bytes there is one
/// signal a rank for lining up.
struct Wired {
  std::unique_ptr<Session> session;
  std::unique_ptr<Transport> baseline;
  std::size_t baseline_bytes = 0;
};
Result<Wired> wire(const RankPlan& plan, std::unique_ptr<Session> session,
                   std::size_t baseline_bytes);

/// Runs the arms and then the plan's peers, round by round, with all ranks lined up before each
/// run; then `leave` ends what the last round left open, and the wiring ends in good order.
Result<std::vector<Spans>> run_wired(const RankPlan& plan, const Wired& wired, RankTensors& tensors,
                                     std::vector<Arm> arms, const std::function<Status()>& leave);

}  // namespace headrace::bench
