#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "collective/on_demand.h"
#include "plan/lockstep_plan.h"
#include "plan/schedule.h"
#include "plan/topology.h"
#include "runtime/stream.h"
#include "transport/transport.h"

namespace headrace {

/// A rank's program, ready to run again and again.
struct Program {
  Program(CollectiveKind kind, RankProgram program);

  CollectiveKind kind;
  RankProgram rank;
  /// Operations that another lane waits for.
  std::vector<bool> awaited;
};

/// What the user regions of one call are. Everything stays valid until the call's milestones say
/// that it is no longer needed.
struct Bindings {
  std::span<const ShardSource> shards;        ///< all-gather with a cast: by parameter
  std::span<void* const> landings;            ///< all-gather: by parameter
  std::span<const GradientSource> gradients;  ///< reduce-scatter: by parameter, in the dtypes that
                                              ///< the program was made for; a null address where
                                              ///< no rank has a gradient: its rows stay as they are
  float* output = nullptr;                    ///< reduce-scatter
  float alpha = 1.0F;
  bool accumulate = false;  ///< adds to what the output holds
};

/// When a call has reached what; an event that the kind of call does not have is there from the
/// start.
using Milestones = std::array<Event, k_milestones>;

/// The streams of both kinds of collective, one a lane. All may be the same inline stream.
using LaneStreams = std::array<std::array<Stream*, k_lanes>, k_collective_kinds>;

/// Runs programs of one rank, one call after the other, and keeps the counts of their signals. All
/// ranks make the same calls in the same order.
class Executor {
 public:
  /// `signals_offset` is where the signals of all programs begin in every rank's memory. Pointers
  /// must outlive the executor; streams must have passed all work before it goes.
  Executor(Transport* transport, const Topology& topology, int rank, std::size_t signals_offset,
           std::size_t signals, const LaneStreams& streams, Milliseconds limit);

  /// Enqueues the program on its lanes, none of which begins before `after` has happened; with
  /// inline streams it has run when this returns. After an error no later call may be made. `call`
  /// describes the call for the errors of its waits.
  Result<Milestones> run(const Program& program, const ArenaRegions& regions,
                         const Bindings& bindings, const Event& after, std::string_view call);

 private:
  struct Count {
    std::uint64_t now = 0;     ///< raised by all calls so far
    std::uint64_t before = 0;  ///< by all calls before the last
  };
  struct Call;

  /// Until the event has happened.
  Status hold_lanes(std::size_t kind, const Event& after);
  Status issue(const Call& call, const Op& op, Stream& stream);
  Status copy(const Call& call, const Op& op, Stream& stream);
  Status sum(const Call& call, const Op& op, Stream& stream);
  /// To the rank of this node in whose memory the place lies.
  Channel& local_channel(const Place& place) const;
  Count& raised(int peer, SignalId signal);
  Count& awaited(SignalId signal) { return awaited_[signal]; }

  Transport* transport_;
  Topology topology_;
  int rank_;
  std::size_t signals_offset_;
  std::size_t signals_;
  LaneStreams streams_;
  Milliseconds limit_;
  std::array<std::uint64_t, k_collective_kinds> calls_{};
  std::vector<Count> raised_;   ///< by peer, then signal
  std::vector<Count> awaited_;  ///< by signal
  std::vector<Event> events_;   ///< by operation of the program that is being enqueued
};

}  // namespace headrace
