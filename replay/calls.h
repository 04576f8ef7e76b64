#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>


#include "collective/on_demand.h"
#include "plan/model_spec.h"
#include "replay/tensors.h"
#include "replay/times.h"
#include "replay/way.h"
#include "runtime/thread_stream.h"
#include "transport/bootstrap.h"

namespace headrace::replay {

/// When one call ran, on the clock of now_ns(), and how much of it was waiting for peers.
struct CallTime {
  CallKind kind = CallKind::enter;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t waited_ns = 0;
};

/// The communication of one rank's training steps in one way: enter, then for every group gathers
/// and reductions, then leave. Calls run one after the other, on the calling thread or on a worker
/// beside it. One user thread.
class Calls {
 public:
  explicit Calls(bool on_worker);
  virtual ~Calls() = default;
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  /// Whether gathers and reductions run beside the caller.
  bool on_worker() const { return worker_ != nullptr; }

  Status enter();
  /// Without a worker it runs when it is waited for, and so never ahead of what it would hide
  /// under.
  Status start_gather(std::size_t group, std::span<void* const> landings);
  bool gather_done(std::size_t group) const { return gathers_[group].done(); }
  Status wait_gather(std::size_t group);
  /// Gradients are free again when it is done.
  Status start_reduce(std::size_t group, std::span<const GradientSource> gradients);
  bool reduce_done(std::size_t group) const { return reductions_[group].done(); }
  Status wait_reduce(std::size_t group);
  /// Waits for all reductions; then every group's summed gradients are in the tensors.
  Status leave();

  /// The calls since the last drain, in the order in which they ended. Between leave and enter.
  std::vector<CallTime> drain() { return std::exchange(times_, {}); }
  /// Leaves the peers in good order.
  virtual void close() = 0;

 protected:
  virtual Status do_enter() = 0;
  virtual Status do_gather(std::size_t group, std::span<void* const> landings) = 0;
  virtual Status do_reduce(std::size_t group, std::span<const GradientSource> gradients,
                           bool first) = 0;
  virtual Status do_leave() = 0;
  /// Time spent waiting for peers so far; asked on the thread that runs the call.
  virtual std::int64_t waited_ns() const = 0;
  void set_groups(std::size_t groups);
  /// Waits for the worker and ends it; before what it uses goes.
  void end_worker();

 private:
  Status timed(CallKind kind, const std::function<Status()>& body);

  std::unique_ptr<ThreadStream> worker_;
  std::vector<std::span<void* const>> asked_;  ///< by group: landings of a gather not yet run
  std::vector<Event> gathers_;
  std::vector<Event> reductions_;
  std::vector<bool> reduced_;  ///< by group, in this step
  std::vector<CallTime> times_;
};

/// What a rank wires its calls with.
struct CallsConfig {
  const ModelSpec& model;
  int rank = 0;
  int world_size = 1;
  bool on_worker = false;
  std::function<Exchange()> next_exchange;  ///< called exchanges_of(way) times
};

/// Wires this rank with its peers. `tensors` must outlive what is returned.
Result<std::unique_ptr<Calls>> make_calls(Way way, const CallsConfig& config, Tensors& tensors);
std::size_t exchanges_of(Way way);
/// Shared memory of one rank.
Result<std::size_t> shared_bytes(Way way, const ModelSpec& model, int world_size);

/// The three ways, for make_calls.
Result<std::unique_ptr<Calls>> make_on_demand_calls(const CallsConfig& config, Tensors& tensors);
Result<std::unique_ptr<Calls>> make_lockstep_calls(const CallsConfig& config, Tensors& tensors);
Result<std::unique_ptr<Calls>> make_packed_calls(const CallsConfig& config, Tensors& tensors);

}  // namespace headrace::replay
