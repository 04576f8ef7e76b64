#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "plan/expressions.h"
#include "plan/lane_clock.h"
#include "plan/schedule_check.h"
#include "plan/world_memory.h"

namespace headrace {

/// The run behind `schedule_check`: all ranks' programs, one operation at a time, each as soon as
/// its waits allow, on symbolic memory. What happened before what follows from lanes, `after` and
/// signals alone, so the one order that is run stands for all.
class ScheduleRun {
 public:
  /// The arguments outlive this; programs have passed `program_check`.
  ScheduleRun(const Topology& topology, std::span<const Collective> collectives,
              std::span<const std::vector<std::size_t>> calls, std::span<const UserDTypes> dtypes);

  /// Once. The first broken rule, or success.
  Status run();

 private:
  static constexpr std::size_t k_kinds = 2;

  struct RankState {
    std::size_t call = 0;      ///< position in the rank's list of calls
    std::size_t position = 0;  ///< in the program
    std::vector<LaneClock> lanes;
    std::vector<Snapshot> done;  ///< of this call's operations
    bool landing_given_back = false;
    bool gradients_given_back = false;
    std::array<std::size_t, k_kinds> kind_calls{};  ///< ended, by kind
    std::vector<std::uint32_t> uses;                ///< ended, by collective
    /// Signals go on from here: as poster, by waiter; as waiter, at the start of each call by kind.
    std::vector<std::map<SignalId, std::uint64_t>> raised_before;
    std::map<SignalId, std::uint64_t> awaited_before;
    std::array<std::vector<std::map<SignalId, std::uint64_t>>, k_kinds> awaited_history;
    /// What the output's elements were in the first use, by collective.
    std::vector<std::vector<std::pair<std::size_t, std::uint32_t>>> sums;
  };
  struct Raise {
    std::uint64_t value;
    Snapshot by;
  };
  struct Signal {
    std::vector<Raise> raises;
    int blocked = -1;
  };

  RankState& state(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const RankState& state(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  const std::vector<std::size_t>& calls(int rank) const {
    return calls_[static_cast<std::size_t>(rank)];
  }
  bool ended(int rank) const { return state(rank).call == calls(rank).size(); }
  std::size_t collective_index(int rank) const { return calls(rank)[state(rank).call]; }
  const Collective& collective(int rank) const { return collectives_[collective_index(rank)]; }
  const RankProgram& program(int rank) const {
    return collective(rank).programs[static_cast<std::size_t>(rank)];
  }
  const Op& op(int rank) const { return program(rank).ops[state(rank).position]; }
  static std::size_t kind(const Collective& collective) {
    return static_cast<std::size_t>(collective.kind);
  }
  std::size_t kind_call(int rank) const { return state(rank).kind_calls[kind(collective(rank))]; }
  LaneClock& lane(int rank) {
    return state(rank)
        .lanes[kind(collective(rank)) * k_lanes + static_cast<std::size_t>(op(rank).lane)];
  }
  /// Identifies which use of which collective data belongs to.
  std::uint32_t use(std::size_t collective, std::uint32_t uses) const {
    return static_cast<std::uint32_t>(uses * collectives_.size() + collective);
  }
  std::uint32_t use(int rank) const {
    return use(collective_index(rank), state(rank).uses[collective_index(rank)]);
  }
  /// The caller giving the rank its memory for a use of the collective.
  Epoch caller(int rank, std::size_t collective, std::uint32_t uses) const;

  // What errors say.
  std::string here(int rank) const;
  std::string who(Epoch epoch) const;
  Error broken(int rank, const std::string& rule) const;
  std::string name(int rank, const Place& place, std::size_t begin, std::size_t end) const;
  std::string holds(const Value& value) const;
  Error stuck(int rank) const;

  // Order: who runs next, and what it knows.
  void begin_call(int rank);
  void end_call(int rank);
  /// Runs the rank until it waits or has ended.
  Status advance(int rank);
  std::uint64_t wanted(int rank) const;
  Status raise(int rank);
  Status perform(int rank);

  // Data, in schedule_data.cc.
  IntervalMemory& memory(int rank, const Place& place, int owner) {
    // A put counts by the same call as its sender does.
    return memory_.at(owner, place, collective_index(rank), kind_call(rank));
  }
  Status not_given_back(int rank, const Place& place) const;
  /// What the row holds, after checking that reading it now is safe.
  Status read(int rank, const Strided& from, std::size_t row, std::vector<Extent>& extents);
  Status write(int rank, std::size_t row, std::span<const Extent> extents);
  Value unknown(int rank, Value::Fault fault) {
    return {.kind = Value::Kind::unknown, .fault = fault, .culprit = lane(rank).now()};
  }
  Status copy(int rank);
  Status zero(int rank);
  Status sum(int rank);
  /// Adds as many elements as all sources hold in one extent each; returns how many.
  std::size_t add(int rank, std::size_t most);
  void include(int rank, std::size_t source, Value value, Value& total);

  // Milestones, in schedule_milestones.cc.
  Status mark(int rank);
  /// The caller reads `bytes` of its memory after the mark and must find these elements, in a
  /// reduce-scatter summed over all ranks.
  Status caller_reads(int rank, const Place& place, std::size_t bytes, const Value& expected);
  Status all_contribute(int rank, const Place& place, const Segment& segment) const;
  Status no_readers_left(int rank, const Place& place);
  Place own_place(int rank, Region region, std::size_t index = 0, std::size_t offset = 0) const;
  Status parameters_ready(int rank);
  Status shard_read(int rank);
  Status sources_consumed(int rank);
  Status complete(int rank);
  Status output(int rank);

  struct Cursor {
    std::size_t extent = 0;
    std::size_t bytes = 0;
  };

  const Topology topology_;
  std::span<const Collective> collectives_;
  std::span<const std::vector<std::size_t>> calls_;
  WorldMemory memory_;
  Expressions expressions_;
  std::vector<RankState> ranks_;
  std::vector<std::vector<Signal>> signals_;  ///< [waiter][identifier]
  std::deque<int> runnable_;
  std::size_t first_user_lane_ = 0;
  /// [lane]: call and position of each operation so far.
  std::vector<std::vector<std::pair<std::uint32_t, std::uint32_t>>> history_;
  std::vector<Extent> extents_;
  std::vector<std::vector<Extent>> addends_;
  std::vector<Cursor> cursors_;
  std::vector<std::uint32_t> operands_;
};

}  // namespace headrace
