#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "plan/lockstep_plan.h"
#include "plan/on_demand_plan.h"
#include "runtime/liveness.h"
#include "runtime/waiter.h"

namespace headrace {

/// Which ways of communicating a session is wired for.
enum class SessionMode {
  on_demand,
  lockstep,
  both,  ///< each bracket goes one of the two ways
};

/// Everything about a session that a user may set. All time-outs, sizes and counts of the engine
/// are here or in the structs that it holds.
struct SessionConfig {
  int rank = 0;
  int world_size = 1;
  /// What must agree on every rank beside the model, "name=value" separated by spaces.
  std::string fingerprint;
  LivenessConfig liveness;
  WaitConfig wait;
  Milliseconds bootstrap{60'000};                   ///< longest wait for peers at connect
  std::size_t chunk_bytes = std::size_t{64} << 10;  ///< of fp32 accumulators under one lock
  Accumulation accumulate = Accumulation::arrival;  ///< must agree on every rank
  SessionMode mode = SessionMode::on_demand;        ///< must agree on every rank
  int local_ranks = 0;              ///< ranks a node; 0: all. On-demand needs all ranks on one node
  LockstepOptions lockstep;         ///< must agree on every rank
  bool worker_threads = false;      ///< gathers and pushes run beside the caller; must agree
  std::size_t pushes_in_flight{2};  ///< with worker threads; one more waits for the oldest
  std::size_t trace_events =
      65'536;  ///< kept between two drains; later ones are counted as dropped
  std::function<bool()> interrupted;  ///< true ends a wait; may be empty
};

}  // namespace headrace
