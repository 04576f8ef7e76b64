#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "collective/on_demand.h"
#include "plan/model_spec.h"
#include "replay/tensors.h"
#include "replay/times.h"
#include "replay/way.h"
#include "transport/bootstrap.h"

namespace headrace::replay {

/// When one call ran, on the clock of now_ns(), and how much of it was waiting for peers.
struct CallTime {
  CallKind kind = CallKind::enter;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t waited_ns = 0;
};

/// The communication of one rank's training steps in one way: enter, then gathers and reductions of
/// groups, then leave. One caller.
class Calls {
 public:
  Calls() = default;
  virtual ~Calls() = default;
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  virtual Status enter() = 0;
  /// Beside the caller, or where there is no worker, when it is waited for.
  virtual Status start_gather(std::size_t group, std::span<void* const> landings) = 0;
  virtual Status wait_gather(std::size_t group) = 0;
  /// Beside the caller, or where there is no worker, now. `first` in this step of this group: sums
  /// begin with it.
  virtual Status start_reduce(std::size_t group, std::span<const GradientSource> gradients,
                              bool first) = 0;
  /// The group's gradients may be written again.
  virtual Status wait_reduce(std::size_t group) = 0;
  /// Waits for all reductions; then every group's summed gradients are in the tensors.
  virtual Status leave() = 0;

  /// The calls since the last drain. Between leave and enter.
  virtual std::vector<CallTime> drain() = 0;
  /// Leaves the peers in good order.
  virtual void close() = 0;
};

/// What a rank wires its calls with.
struct CallsConfig {
  const ModelSpec& model;
  int rank = 0;
  int world_size = 1;
  bool on_worker = false;                   ///< gathers and reductions run beside the caller
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
