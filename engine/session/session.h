#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collective/on_demand.h"
#include "collective/settle.h"
#include "plan/on_demand_plan.h"
#include "session/config.h"
#include "session/trace.h"
#include "transport/transport.h"

namespace headrace {

/// Totals of one rank since connect. Bytes count b_p, pad rows and the rank's own part included.
struct Counters {
  std::uint64_t publish_bytes = 0;
  std::uint64_t gather_bytes = 0;
  std::uint64_t push_bytes = 0;
  std::uint64_t gathers = 0;
  std::uint64_t pushes = 0;
  std::int64_t wait_ns = 0;
  std::uint64_t arena_bytes = 0;
  std::uint64_t trace_dropped = 0;
};

/// On-demand communication of one model on one rank: brackets (open, then gather and push in any
/// number, then finish, and for a minibatch settle and collect) over one arena.
///
/// One caller at a time. An operation error leaves the session as it was; any other error ends it
/// here and at every peer, and every later call returns it again. In a forked child every call is
/// an operation error and nothing is touched.
class Session {
 public:
  using MakeTransport = std::function<Result<std::unique_ptr<Transport>>(const TransportConfig&)>;

  /// Wires this rank with its peers. Every rank calls it with the same model.
  static Result<std::unique_ptr<Session>> connect(const SessionConfig& config, ModelSpec model,
                                                  const MakeTransport& make_transport);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const { return config_.rank; }
  int world_size() const { return config_.world_size; }
  /// Of the bracket that is open or was open last; 0 before the first.
  std::uint64_t epoch() const { return digest_.epoch; }
  bool in_bracket() const { return phase_ == Phase::open; }
  const OnDemandPlan& plan() const { return plan_; }

  /// Enters a bracket and publishes every group; `sources[g][p]`. Returns the epoch. `plan` is the
  /// digest of the balancer's plan and `weight` the global count, 0 where not given.
  Result<std::uint64_t> open(BracketKind kind, double weight, std::uint64_t plan,
                             const std::vector<std::vector<ShardSource>>& sources);
  /// `landings[p]` holds N * R_p * K_p items of parameter p.
  Status gather(std::size_t group, std::span<void* const> landings);
  /// At most one gradient a parameter, in any order. Free when the call returns.
  Status push(std::size_t group, std::vector<GradientSource> gradients);
  /// Leaves the bracket with this rank's loss sum, token or sample count, and flags whose union
  /// settle returns.
  Status finish(double loss_sum, double weight, std::uint64_t flags);
  Result<Settlement> settle();
  /// This rank's real rows of the summed gradient, times `scale`, written to or added at
  /// `destination`.
  Status collect(std::size_t group, std::size_t parameter, void* destination, DType dtype,
                 float scale, bool add);

  /// Ends the session here and at every peer.
  void fail(const std::string& reason);
  /// Leaves in good order; every later call but close is an operation error. Idempotent.
  void close();
  /// The failure of any rank, as the next call would report it.
  Status check() const;

  Counters counters() const;
  std::vector<TraceEvent> drain_trace() { return trace_.drain(); }

 private:
  enum class Phase { idle, open, finished, closed };

  Session(const SessionConfig& config, OnDemandPlan plan, std::unique_ptr<Transport> transport);

  OnDemand on_demand();
  /// Remembers which accumulators are no longer zero.
  void mark_dirty(const std::vector<std::vector<std::uint64_t>>& touched_by);
  Status require(Phase phase, const char* call) const;
  Status require_group(std::size_t group, const char* call) const;
  /// Runs the body, records the event, and ends the session where the error is larger than the
  /// operation.
  template <class Body>
  auto traced(const char* name, int group, std::uint64_t bytes, const Body& body);

  SessionConfig config_;
  OnDemandPlan plan_;
  std::unique_ptr<Transport> transport_;
  InlineStream stream_;
  Trace trace_;
  Counters counters_;
  int owner_pid_;

  Phase phase_ = Phase::idle;
  BracketDigest digest_;
  bool published_once_ = false;
  std::vector<std::vector<bool>> dirty_;  ///< [group][slot] of accumulators to zero at the next
                                          ///< publish
  std::vector<std::uint64_t> touched_;    ///< parameters that this rank pushed in this bracket
  std::vector<std::uint64_t> sent_;       ///< pushes to each owner since connect
};

}  // namespace headrace
