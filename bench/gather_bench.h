#pragma once

#include <functional>
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
  std::size_t chunk_bytes = SessionConfig{}.chunk_bytes;
  std::function<Exchange()> next_exchange;
  std::vector<std::function<Arm(RankTensors&)>>
      peers;  ///< further arms, such as another library's collective
};

/// Arms, in order: publish; gather (ours); packed_baseline; limit, a flat streaming-store copy of
/// the same bytes from the same memory; then the plan's peers. Checks what the first gather and the
/// baseline brought.
Result<std::vector<Spans>> gather_bench(const RankPlan& plan);

/// Arms, in order: arrival_minibatch and reproducible_minibatch, publish to settle around one push;
/// arrival, the push alone (ours); reproducible, the same into slots; packed_baseline; limit, the
/// same accumulate kernel on private memory without locks; then peers.
Result<std::vector<Spans>> push_bench(const RankPlan& plan);

/// A session over shm.
Result<std::unique_ptr<Session>> connect(const RankPlan& plan, Accumulation accumulate);

/// A session that adds in arrival order, and a second transport for the baseline.
struct Wired {
  std::unique_ptr<Session> session;
  std::unique_ptr<Transport> baseline;
};
Result<Wired> wire(const RankPlan& plan);

/// Runs the arms and then the plan's peers, round by round, with all ranks lined up before each
/// run; then `leave` ends what the last round left open, and the wiring ends in good order.
Result<std::vector<Spans>> run_wired(const RankPlan& plan, const Wired& wired, RankTensors& tensors,
                                     std::vector<Arm> arms, const std::function<Status()>& leave);

}  // namespace headrace::bench
