#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collective/lockstep.h"
#include "collective/on_demand.h"
#include "collective/settle.h"
#include "plan/on_demand_plan.h"
#include "runtime/thread_stream.h"
#include "session/config.h"
#include "session/task.h"
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
  std::int64_t wait_ns = 0;    ///< the caller was held up, by peers or by its own workers
  std::int64_t worker_ns = 0;  ///< workers were in operations, their waits for peers included
  std::int64_t hidden_ns = 0;  ///< of that while the caller was not waiting for a worker
  std::uint64_t arena_bytes = 0;
  std::uint64_t trace_dropped = 0;
};

/// Communication of one model on one rank over one arena. On demand: brackets (open, then gather
/// and push in any number, then finish, and for a minibatch settle and collect). In lockstep:
/// all_gather and reduce_scatter, in the same order on every rank, within a bracket in step or
/// without any.
///
/// With worker threads, gathers and pushes run beside the caller: gathers (and all lockstep calls)
/// on one thread, pushes on another, each in the order of the calls. Without, a gather moves
/// nothing until it is waited for, and pushes and reduce-scatters have happened when they return.
/// Memory given to a call (landings, shards, gradients, outputs) belongs to the session until the
/// wait for that call has returned anything but an interruption, or finish, fail or close has
/// returned. An error on a worker is returned by the wait for it, and ends the session as below.
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
  /// digest of the balancer's plan and `weight` the global count, 0 where not given. A bracket
  /// in step is for lockstep: nothing is published (no sources), and it begins when all ranks have
  /// entered it.
  Result<std::uint64_t> open(BracketKind kind, double weight, std::uint64_t plan,
                             const std::vector<std::vector<ShardSource>>& sources,
                             bool in_step = false);
  /// Begins to gather; several groups may be under way. `landings[p]` holds N * R_p * K_p items of
  /// parameter p.
  Status start_gather(std::size_t group, std::span<void* const> landings);
  /// Ends what start_gather or start_all_gather began: the landings are written. An interrupted
  /// wait leaves it under way.
  Status wait_gather(std::size_t group);
  /// Both.
  Status gather(std::size_t group, std::span<void* const> landings);
  /// At most one gradient a parameter, in any order. Returns the push's ticket: tickets count from
  /// 1 and are shared with reduce-scatters.
  Result<std::uint64_t> push(std::size_t group, std::vector<GradientSource> gradients);
  /// Every push and reduce-scatter with a ticket up to this has happened: their memory is free.
  std::uint64_t pushed() const;
  /// Returns once that is so for `ticket`, or the error of one of them.
  Status wait_pushed(std::uint64_t ticket);
  /// Leaves the bracket with this rank's loss sum, token or sample count, and flags whose union
  /// settle returns. First waits for all pushes, and ends or drops gathers that nobody waited for.
  Status finish(double loss_sum, double weight, std::uint64_t flags);
  Result<Settlement> settle();
  /// This rank's real rows of the summed gradient, times `scale`, written to or added at
  /// `destination`.
  Status collect(std::size_t group, std::size_t parameter, void* destination, DType dtype,
                 float scale, bool add);

  /// Begins to write the whole group: `landings[p]` holds N * R_p * K_p items. `shards` are this
  /// rank's rows, not looked at for an adopted group. wait_gather ends it. All ranks begin the same
  /// collectives in the same order; without worker threads what counts is the order of the waits.
  Status start_all_gather(std::size_t group, std::span<const ShardSource> shards,
                          std::span<void* const> landings);
  /// Both.
  Status all_gather(std::size_t group, std::span<const ShardSource> shards,
                    std::span<void* const> landings);
  /// Writes `alpha` times the sum over all ranks of this rank's real rows of each gradient to
  /// `output`, packed in fp32 as the plan's map says for accumulators, or adds it. The same
  /// parameters on every rank, and the same answer to whether the caller goes on adding to
  /// gradients of earlier calls. Returns the ticket to wait for with wait_pushed.
  Result<std::uint64_t> start_reduce_scatter(std::size_t group,
                                             std::span<const GradientSource> gradients,
                                             float* output, float alpha, bool accumulate,
                                             bool earlier = false);
  /// Both.
  Status reduce_scatter(std::size_t group, std::span<const GradientSource> gradients, float* output,
                        float alpha, bool accumulate, bool earlier = false);
  /// Where the shards of an adopted group lie: R_p * K_p items in the gather dtype, zero at first.
  Result<std::byte*> resident(std::size_t group, std::size_t parameter);
  /// Keeps such shards mapped, longer than the session; null once that is closed.
  std::shared_ptr<const void> memory_owner() const {
    return transport_ == nullptr ? nullptr : transport_->memory_owner();
  }

  /// Ends the session here and at every peer.
  void fail(const std::string& reason);
  /// Leaves in good order; every later call but close is an operation error. Idempotent.
  void close();
  /// The failure of any rank, as the next call would report it.
  Status check() const;

  Counters counters() const;
  std::vector<TraceEvent> drain_trace();

 private:
  enum class Phase { idle, open, finished, closed };

  Session(const SessionConfig& config, OnDemandPlan plan, std::optional<LockstepPlan> lockstep_plan,
          std::unique_ptr<Transport> transport, std::shared_ptr<std::atomic<bool>> stopping);

  OnDemand on_demand();
  /// Remembers which accumulators are no longer zero.
  void mark_dirty(const std::vector<std::vector<std::uint64_t>>& touched_by);
  /// That this process made the session, and has not closed it.
  Status require_usable() const;
  Status require(Phase phase, const char* call) const;
  Status require_group(std::size_t group, const char* call) const;
  Status require_lockstep(std::size_t group, const char* call) const;
  Status require_known(std::size_t group, const char* call) const;
  /// Bytes of the unsharded gradients; error where one is of no parameter, or two are of the same.
  Result<std::uint64_t> gradient_bytes(std::size_t group, std::span<const GradientSource> gradients,
                                       const char* call) const;
  /// In a session for lockstep alone: returns once all ranks have entered the same bracket.
  Status agree(const BracketDigest& digest);
  /// There: what all ranks' records come to.
  Result<Settlement> settle_records();
  /// Runs the body, records the event, and ends the session where the error is larger than the
  /// operation. On any thread.
  template <class Body>
  auto traced(const char* name, int group, std::uint64_t bytes, const Body& body);

  /// `body` is a gather of the group: begun on the worker, or kept for who waits for it.
  Status start(std::size_t group, Task::Body body);
  /// `body` is a push or reduce-scatter: begun on `worker`, or run now. Returns its ticket.
  Result<std::uint64_t> hand_over(ThreadStream* worker, Task::Body body);
  /// Holds the caller until the task is ready; the error is an interruption.
  Status hold(Task& task, int group);
  /// Of all that is under way; the first error.
  Status drain_work();
  /// Waits for what workers are doing and drops the rest, for good.
  void stop_work();

  SessionConfig config_;
  OnDemandPlan plan_;
  std::optional<LockstepPlan> lockstep_plan_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Lockstep> lockstep_;
  InlineStream stream_;
  Trace trace_;
  Counters counters_;
  std::atomic<std::int64_t> worker_ns_ = 0;
  std::int64_t held_ns_ = 0;  ///< the caller waited for workers
  int owner_pid_;

  std::shared_ptr<std::atomic<bool>> stopping_;  ///< ends the workers' waits
  std::unique_ptr<ThreadStream> worker_;         ///< null without worker threads
  std::unique_ptr<ThreadStream> pusher_;         ///< null there, and in lockstep alone
  std::map<std::size_t, Task> gathers_;          ///< by group: not waited for yet
  std::deque<Task> pushes_;                      ///< the last ones, up to `tickets_`
  std::uint64_t tickets_ = 0;                    ///< given out

  Phase phase_ = Phase::idle;
  BracketDigest digest_;
  BracketRecord record_;  ///< of the bracket just finished, in a session for lockstep alone
  bool published_once_ = false;
  std::vector<std::vector<bool>> dirty_;  ///< [group][slot] of accumulators to zero at the next
                                          ///< publish
  std::vector<std::uint64_t> touched_;    ///< parameters that this rank pushed in this bracket
  std::vector<std::uint64_t> sent_;       ///< pushes to each owner since connect
};

template <class Body>
auto Session::traced(const char* name, int group, std::uint64_t bytes, const Body& body) {
  const char* worker = ThreadStream::here();
  TraceEvent event{.name = name, .group = group, .bytes = bytes};
  const std::int64_t waited_before = Waiter::waited_here_ns();
  event.begin_ns = now_ns();
  auto result = body();
  event.end_ns = now_ns();
  event.waited_ns = Waiter::waited_here_ns() - waited_before;
  if (worker != nullptr) {
    event.thread = worker;
    worker_ns_.fetch_add(event.end_ns - event.begin_ns, std::memory_order_relaxed);
  } else {
    counters_.wait_ns += event.waited_ns;
  }
  trace_.add(event);
  if (!result && result.error().scope != Scope::operation) {
    transport_->liveness().fail(result.error());
  }
  return result;
}

}  // namespace headrace
