#include "plan/schedule_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "plan/expressions.h"
#include "plan/program_check.h"
#include "plan/world_memory.h"

namespace headrace {
namespace {

constexpr std::size_t k_kinds = 2;

/// Both sides of every signal of a collective go on from the same count, and each has one poster.
Status check_totals(const Collective& collective) {
  using Key = std::tuple<int, SignalId, int>;  // waiter, signal, poster
  std::map<Key, std::uint32_t> raised;
  const auto world = static_cast<int>(collective.programs.size());
  for (int rank = 0; rank < world; ++rank) {
    for (const SignalTotal& total : collective.programs[static_cast<std::size_t>(rank)].raised) {
      raised[{total.peer, total.signal, rank}] = total.count;
    }
  }
  for (int rank = 0; rank < world; ++rank) {
    for (const SignalTotal& total : collective.programs[static_cast<std::size_t>(rank)].awaited) {
      const Key key(rank, total.signal, total.peer);
      const auto found = raised.find(key);
      const std::uint32_t count = found == raised.end() ? 0 : found->second;
      if (count != total.count) {
        return operation_error(fmt::format(
            "rank {} expects rank {} to raise its signal {} to {}, which raises it to {}", rank,
            total.peer, total.signal, total.count, count));
      }
      raised.erase(key);
    }
  }
  if (!raised.empty()) {
    const auto& [waiter, signal, poster] = raised.begin()->first;
    return operation_error(fmt::format(
        "rank {} raises signal {} of rank {}, which does not await it", poster, signal, waiter));
  }
  return {};
}

const char* describe(Value::Fault fault) {
  switch (fault) {
    case Value::Fault::unwritten:
      return "what nobody had written";
    case Value::Fault::dtype:
      return "what was read in another dtype";
    case Value::Fault::mixed:
      return "a sum of different elements or of different calls";
    case Value::Fault::twice:
      return "a sum with one contribution twice";
    case Value::Fault::unfinal:
      return "a sum with a finished addend";
  }
  return "?";
}

class ScheduleRun {
 public:
  ScheduleRun(const Topology& topology, std::span<const Collective> collectives,
              std::span<const std::vector<std::size_t>> calls, std::span<const UserDTypes> dtypes)
      : topology_(topology),
        collectives_(collectives),
        calls_(calls),
        memory_(topology, collectives, dtypes),
        expressions_(static_cast<std::size_t>(topology.world_size())) {
    const auto world = static_cast<std::size_t>(topology.world_size());
    std::size_t signals = 0;
    for (const Collective& collective : collectives) {
      signals = std::max(signals, collective.shape.signals);
    }
    first_user_lane_ = world * k_kinds * k_lanes;
    const std::size_t lanes = first_user_lane_ + world * collectives.size();
    history_.resize(first_user_lane_);
    signals_.assign(world, std::vector<Signal>(signals));
    for (std::size_t rank = 0; rank < world; ++rank) {
      RankState& state = ranks_.emplace_back();
      for (std::size_t lane = 0; lane < k_kinds * k_lanes; ++lane) {
        state.lanes.emplace_back(static_cast<std::uint32_t>(rank * k_kinds * k_lanes + lane),
                                 lanes);
      }
      state.raised_before.resize(world);
      state.uses.assign(collectives.size(), 0);
      state.sums.resize(collectives.size());
    }
  }

  Status run() {
    const int world = topology_.world_size();
    for (int rank = 0; rank < world; ++rank) {
      for (std::size_t collective = 0; collective < collectives_.size(); ++collective) {
        memory_.fill_shard(rank, collective, use(collective, 0), caller(rank, collective, 0));
      }
      begin_call(rank);
      runnable_.push_back(rank);
    }
    while (!runnable_.empty()) {
      const int rank = runnable_.front();
      runnable_.pop_front();
      HEADRACE_TRY(advance(rank));
    }
    for (int rank = 0; rank < world; ++rank) {
      if (!ended(rank)) {
        return stuck(rank);
      }
    }
    return {};
  }

 private:
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
  Epoch caller(int rank, std::size_t collective, std::uint32_t uses) const {
    return {
        static_cast<std::uint32_t>(
            first_user_lane_ + static_cast<std::size_t>(rank) * collectives_.size() + collective),
        uses + 1};
  }

  // --- Errors ---

  std::string here(int rank) const {
    return fmt::format("{} of call {} ({} of {})",
                       headrace::describe(rank, state(rank).position, op(rank)), state(rank).call,
                       to_string(collective(rank).kind), collective(rank).group.name);
  }
  std::string who(Epoch epoch) const {
    if (epoch.count == 0) {
      return "nobody";
    }
    if (epoch.lane >= first_user_lane_) {
      return fmt::format("the caller of rank {}",
                         (epoch.lane - first_user_lane_) / collectives_.size());
    }
    const auto rank = epoch.lane / (k_kinds * k_lanes);
    const auto [call, position] = history_[epoch.lane][epoch.count - 1];
    const Collective& its = collectives_[calls_[rank][call]];
    return fmt::format(
        "{} of call {}",
        headrace::describe(static_cast<int>(rank), position, its.programs[rank].ops[position]),
        call);
  }
  Error broken(int rank, const std::string& rule) const {
    Error error = operation_error(here(rank) + ": " + rule);
    error.rank = rank;
    return error;
  }
  std::string name(int rank, const Place& place, std::size_t begin, std::size_t end) const {
    std::string region = to_string(place.region);
    if (is_user(place.region) && place.region != Region::output) {
      region += fmt::format(" {}", place.index);
    }
    return fmt::format("bytes [{}, {}) of {} of rank {}", begin, end, region,
                       topology_.rank_of(topology_.node_of(rank), place.local));
  }
  std::string holds(const Value& value) const {
    switch (value.kind) {
      case Value::Kind::zero:
        return "zeros";
      case Value::Kind::unknown:
        return value.culprit.count == 0
                   ? describe(value.fault)
                   : fmt::format("{}, by {}", describe(value.fault), who(value.culprit));
      case Value::Kind::data:
        break;
    }
    const std::size_t collective = value.use % collectives_.size();
    return fmt::format(
        "elements {}... of parameter {} of use {} of {}, {} bytes each, of {} "
        "contributors, {}finished",
        value.element, value.parameter, value.use / collectives_.size(),
        collectives_[collective].group.name, value.item_bytes,
        expressions_.contributors(value.expression), value.finished ? "" : "not ");
  }
  Error stuck(int rank) const {
    const Op& wait = op(rank);
    std::string peer = fmt::format("rank {} has ended", wait.peer);
    if (!ended(wait.peer)) {
      peer = fmt::format("{} waits for rank {}", here(wait.peer), op(wait.peer).peer);
    }
    return broken(rank, fmt::format("waits for ever for signal {} of rank {} to reach {}: {}",
                                    wait.signal, wait.peer, wanted(rank), peer));
  }

  // --- Order of operations ---

  void begin_call(int rank) {
    RankState& own = state(rank);
    if (ended(rank)) {
      return;
    }
    const std::size_t index = collective_index(rank);
    const Epoch from = caller(rank, index, own.uses[index]);
    memory_.begin_call(rank, index, use(rank), from);
    for (std::size_t at = 0; at < k_lanes; ++at) {
      own.lanes[kind(collective(rank)) * k_lanes + at].learn(from);
    }
    own.awaited_history[kind(collective(rank))].push_back(own.awaited_before);
    own.position = 0;
    own.done.clear();
    own.landing_given_back = false;
    own.gradients_given_back = false;
  }

  void end_call(int rank) {
    RankState& own = state(rank);
    for (const SignalTotal& total : program(rank).raised) {
      own.raised_before[static_cast<std::size_t>(total.peer)][total.signal] += total.count;
    }
    for (const SignalTotal& total : program(rank).awaited) {
      own.awaited_before[total.signal] += total.count;
    }
    ++own.kind_calls[kind(collective(rank))];
    ++own.uses[collective_index(rank)];
    ++own.call;
    begin_call(rank);
  }

  /// Runs the rank until it waits or has ended.
  Status advance(int rank) {
    while (!ended(rank)) {
      RankState& own = state(rank);
      const Op& operation = op(rank);
      LaneClock& clock = lane(rank);
      if (operation.kind == OpKind::wait) {
        Signal& signal = signals_[static_cast<std::size_t>(rank)][operation.signal];
        const std::uint64_t value = wanted(rank);
        if (value > 0) {
          if (signal.raises.empty() || signal.raises.back().value < value) {
            signal.blocked = rank;
            return {};
          }
          const auto raise = std::lower_bound(
              signal.raises.begin(), signal.raises.end(), value,
              [](const Raise& left, std::uint64_t right) { return left.value < right; });
          clock.learn(raise->by);
        }
      }
      for (const std::uint32_t before : operation.after) {
        clock.learn(own.done[before]);
      }
      const Epoch epoch = clock.step();
      history_[epoch.lane].emplace_back(static_cast<std::uint32_t>(own.call),
                                        static_cast<std::uint32_t>(own.position));
      HEADRACE_TRY(perform(rank));
      own.done.push_back(clock.snapshot());
      if (++own.position == program(rank).ops.size()) {
        end_call(rank);
      }
    }
    return {};
  }

  std::uint64_t wanted(int rank) const {
    const Op& wait = op(rank);
    const auto& history = state(rank).awaited_history[kind(collective(rank))];
    // The last of the history is what all earlier calls raised it to.
    const std::size_t back = wait.calls_back == 0 ? 1 : wait.calls_back;
    if (back > history.size()) {
      return 0;
    }
    const auto& before = history[history.size() - back];
    const auto found = before.find(wait.signal);
    return (found == before.end() ? 0 : found->second) + wait.count;
  }

  Status raise(int rank) {
    const Op& operation = op(rank);
    const auto& before = state(rank).raised_before[static_cast<std::size_t>(operation.peer)];
    const auto found = before.find(operation.signal);
    const std::uint64_t value = (found == before.end() ? 0 : found->second) + operation.count;
    Signal& signal = signals_[static_cast<std::size_t>(operation.peer)][operation.signal];
    if (!signal.raises.empty()) {
      const Raise& last = signal.raises.back();
      if (!lane(rank).knows(last.by.self)) {
        return broken(rank, fmt::format("raises signal {} of rank {} without an order to {}",
                                        operation.signal, operation.peer, who(last.by.self)));
      }
      if (value <= last.value) {
        return broken(rank, fmt::format("raises signal {} of rank {} to {} after {}",
                                        operation.signal, operation.peer, value, last.value));
      }
    }
    signal.raises.push_back({value, lane(rank).snapshot()});
    if (signal.blocked >= 0) {
      runnable_.push_back(signal.blocked);
      signal.blocked = -1;
    }
    return {};
  }

  Status perform(int rank) {
    switch (op(rank).kind) {
      case OpKind::copy:
      case OpKind::put:
        return copy(rank);
      case OpKind::zero:
        return zero(rank);
      case OpKind::sum:
      case OpKind::land:
        return sum(rank);
      case OpKind::signal:
      case OpKind::credit:
        return raise(rank);
      case OpKind::wait:
        return {};
      case OpKind::mark:
        return mark(rank);
    }
    return {};
  }

  // --- Data ---

  IntervalMemory& memory(int rank, const Place& place, int owner) {
    // A put counts by the same call as its sender does.
    return memory_.at(owner, place, collective_index(rank), kind_call(rank));
  }

  Status not_given_back(int rank, const Place& place) const {
    const RankState& own = state(rank);
    if (place.region == Region::gradient && own.gradients_given_back) {
      return broken(rank, "reads a gradient after 'sources consumed'");
    }
    if (place.region == Region::landing && own.landing_given_back) {
      return broken(rank, "touches a landing after 'parameters ready'");
    }
    return {};
  }

  /// What the row holds, after checking that reading it now is safe.
  Status read(int rank, const Strided& from, std::size_t row, std::vector<Extent>& extents) {
    extents.clear();
    LaneClock& clock = lane(rank);
    const std::size_t begin = from.place.offset + row * from.pitch;
    const std::size_t end = begin + op(rank).elements * item_size(from.dtype);
    HEADRACE_TRY(not_given_back(rank, from.place));
    for (Segment& segment : memory(rank, from.place, rank).range(begin, end)) {
      if (!clock.knows(segment.writer)) {
        return broken(rank, fmt::format("reads {} without an order to their writer: {}",
                                        name(rank, from.place, segment.begin, segment.end),
                                        who(segment.writer)));
      }
      // Readers that happened before this one need not be remembered beside it.
      std::erase_if(segment.readers, [&](Epoch reader) { return clock.knows(reader); });
      segment.readers.push_back(clock.now());
      Value value = segment.value;
      if (value.kind == Value::Kind::unknown && value.culprit.count == 0) {
        value.culprit = clock.now();
      }
      append(extents, {segment.end - segment.begin, value});
    }
    return {};
  }

  Status write(int rank, std::size_t row, std::span<const Extent> extents) {
    const Op& operation = op(rank);
    const Place& place = operation.destination.place;
    const int owner = operation.kind == OpKind::put ? operation.peer : rank;
    HEADRACE_TRY(not_given_back(rank, place));
    LaneClock& clock = lane(rank);
    const std::size_t begin = place.offset + row * operation.destination.pitch;
    const std::size_t end = begin + operation.elements * item_size(operation.destination.dtype);
    const bool gathers = collective(rank).kind == CollectiveKind::all_gather;
    IntervalMemory& bytes = memory(rank, place, owner);
    for (const Segment& segment : bytes.range(begin, end)) {
      if (gathers && place.region == Region::landing && segment.writer.count > 0) {
        return broken(
            rank, fmt::format("writes {} twice in one call: before, {} did",
                              name(owner, place, segment.begin, segment.end), who(segment.writer)));
      }
      if (!clock.knows(segment.writer)) {
        return broken(
            rank, fmt::format("writes {} without an order to their last writer: {}",
                              name(owner, place, segment.begin, segment.end), who(segment.writer)));
      }
      for (const Epoch reader : segment.readers) {
        if (!clock.knows(reader)) {
          return broken(rank,
                        fmt::format("overwrites {} before their reader is done: {}",
                                    name(owner, place, segment.begin, segment.end), who(reader)));
        }
      }
    }
    bytes.write(begin, extents, clock.now());
    return {};
  }

  Value unknown(int rank, Value::Fault fault) {
    return {.kind = Value::Kind::unknown, .fault = fault, .culprit = lane(rank).now()};
  }

  Status copy(int rank) {
    const Op& operation = op(rank);
    const Strided& source = operation.sources.front();
    const std::size_t from = item_size(source.dtype);
    const std::size_t to = item_size(operation.destination.dtype);
    for (std::size_t row = 0; row < operation.rows; ++row) {
      HEADRACE_TRY(read(rank, source, row, extents_));
      if (from != to) {
        for (Extent& extent : extents_) {
          extent.bytes = extent.bytes / from * to;
          if (extent.value.kind == Value::Kind::data) {
            if (extent.value.item_bytes == from) {
              extent.value.item_bytes = static_cast<std::uint32_t>(to);
            } else {
              extent.value = unknown(rank, Value::Fault::dtype);
            }
          }
        }
      }
      HEADRACE_TRY(write(rank, row, extents_));
    }
    return {};
  }

  Status zero(int rank) {
    const Op& operation = op(rank);
    const Extent extent{operation.elements * item_size(operation.destination.dtype),
                        {.kind = Value::Kind::zero}};
    for (std::size_t row = 0; row < operation.rows; ++row) {
      HEADRACE_TRY(write(rank, row, {&extent, extent.bytes > 0 ? 1U : 0U}));
    }
    return {};
  }

  Status sum(int rank) {
    const Op& operation = op(rank);
    addends_.resize(std::max(addends_.size(), operation.sources.size()));
    cursors_.resize(addends_.size());
    for (std::size_t row = 0; row < operation.rows; ++row) {
      for (std::size_t source = 0; source < operation.sources.size(); ++source) {
        HEADRACE_TRY(read(rank, operation.sources[source], row, addends_[source]));
        cursors_[source] = {};
      }
      extents_.clear();
      for (std::size_t done = 0; done < operation.elements;) {
        done += add(rank, operation.elements - done);
      }
      HEADRACE_TRY(write(rank, row, extents_));
    }
    return {};
  }

  /// Adds as many elements as all sources hold in one extent each; returns how many.
  std::size_t add(int rank, std::size_t most) {
    const Op& operation = op(rank);
    const std::size_t sources = operation.sources.size();
    for (std::size_t source = 0; source < sources; ++source) {
      const Extent& extent = addends_[source][cursors_[source].extent];
      const std::size_t left = extent.bytes - cursors_[source].bytes;
      most = std::min(most, left / item_size(operation.sources[source].dtype));
    }
    operands_.clear();
    Value total{.kind = Value::Kind::zero};
    for (std::size_t source = 0; source < sources; ++source) {
      Cursor& cursor = cursors_[source];
      const std::size_t item = item_size(operation.sources[source].dtype);
      const Extent& extent = addends_[source][cursor.extent];
      include(rank, source, extent.value.advanced(cursor.bytes), total);
      cursor.bytes += most * item;
      if (cursor.bytes == extent.bytes) {
        cursor = {cursor.extent + 1, 0};
      }
    }
    if (total.kind == Value::Kind::data) {
      if (const auto expression = expressions_.sum(operands_)) {
        total.expression = *expression;
        total.finished = operation.finish;
      } else {
        total = unknown(rank, Value::Fault::twice);
      }
    }
    append(extents_, {most * sizeof(float), total});
    return most;
  }

  void include(int rank, std::size_t source, Value value, Value& total) {
    if (value.kind == Value::Kind::zero || total.kind == Value::Kind::unknown) {
      return;
    }
    const Op& operation = op(rank);
    const Strided& from = operation.sources[source];
    // Only what earlier waves left in the output may be finished already, and then must be.
    const bool finished = operation.finish && from == operation.destination;
    if (value.kind == Value::Kind::unknown) {
      total = value;
    } else if (value.item_bytes != item_size(from.dtype)) {
      total = unknown(rank, Value::Fault::dtype);
    } else if (value.finished != finished) {
      total = unknown(rank, Value::Fault::unfinal);
    } else if (total.kind == Value::Kind::data &&
               (value.use != total.use || value.parameter != total.parameter ||
                value.element != total.element)) {
      total = unknown(rank, Value::Fault::mixed);
    } else {
      operands_.push_back(value.expression);
      total = value;
      total.item_bytes = sizeof(float);
    }
  }

  // --- Milestones ---

  Status mark(int rank) {
    switch (op(rank).milestone) {
      case Milestone::parameters_ready:
        return parameters_ready(rank);
      case Milestone::shard_read:
        return shard_read(rank);
      case Milestone::sources_consumed:
        return sources_consumed(rank);
      case Milestone::complete:
        return complete(rank);
    }
    return {};
  }

  /// The caller reads `bytes` of its memory after the mark and must find these elements, in a
  /// reduce-scatter summed over all ranks.
  Status caller_reads(int rank, const Place& place, std::size_t bytes, const Value& expected) {
    const bool reduces = collective(rank).kind == CollectiveKind::reduce_scatter;
    const std::size_t begin = place.offset;
    for (const Segment& segment : memory(rank, place, rank).range(begin, begin + bytes)) {
      if (!lane(rank).knows(segment.writer)) {
        return broken(
            rank, fmt::format("is reached without an order to the writer of {}: {}",
                              name(rank, place, segment.begin, segment.end), who(segment.writer)));
      }
      Value wanted = expected.advanced(segment.begin - begin);
      if (reduces && segment.value.kind == Value::Kind::data) {
        wanted.expression = segment.value.expression;
      }
      if (!(segment.value == wanted)) {
        return broken(rank, fmt::format("{} should hold {} but hold {}",
                                        name(rank, place, segment.begin, segment.end),
                                        holds(expected.advanced(segment.begin - begin)),
                                        holds(segment.value)));
      }
      if (reduces) {
        HEADRACE_TRY(all_contribute(rank, place, segment));
      }
    }
    return {};
  }

  Status all_contribute(int rank, const Place& place, const Segment& segment) const {
    for (int contributor = 0; contributor < topology_.world_size(); ++contributor) {
      if (!expressions_.contributes(segment.value.expression,
                                    static_cast<std::size_t>(contributor))) {
        return broken(rank,
                      fmt::format("{} lack the contribution of rank {}",
                                  name(rank, place, segment.begin, segment.end), contributor));
      }
    }
    return {};
  }

  Status no_readers_left(int rank, const Place& place) {
    IntervalMemory& bytes = memory(rank, place, rank);
    for (const Segment& segment : bytes.segments()) {
      for (const Epoch reader : segment.readers) {
        if (!lane(rank).knows(reader)) {
          return broken(rank,
                        fmt::format("is reached before a reader of {} is done: {}",
                                    name(rank, place, segment.begin, segment.end), who(reader)));
        }
      }
    }
    return {};
  }

  Place own_place(int rank, Region region, std::size_t index = 0, std::size_t offset = 0) const {
    return {.local = topology_.local_of(rank),
            .region = region,
            .index = static_cast<std::uint32_t>(index),
            .offset = offset};
  }

  Status parameters_ready(int rank) {
    const std::size_t index = collective_index(rank);
    const AddressMap& map = memory_.map(index);
    for (std::size_t parameter = 0; parameter < map.parameters(); ++parameter) {
      const DType dtype = collective(rank).group.parameters[parameter].dtype;
      Value expected{.kind = Value::Kind::data,
                     .item_bytes = static_cast<std::uint32_t>(item_size(dtype)),
                     .use = use(rank),
                     .parameter = static_cast<std::uint32_t>(parameter)};
      for (int owner = 0; owner < topology_.world_size(); ++owner) {
        expected.element = memory_.first_element(index, parameter, owner);
        HEADRACE_TRY(caller_reads(
            rank, own_place(rank, Region::landing, parameter, map.landing_offset(parameter, owner)),
            map.shard_bytes(parameter, owner), expected));
      }
    }
    state(rank).landing_given_back = true;
    return {};
  }

  Status shard_read(int rank) {
    const std::size_t index = collective_index(rank);
    HEADRACE_TRY(no_readers_left(rank, own_place(rank, Region::resident)));
    for (std::size_t parameter = 0; parameter < memory_.map(index).parameters(); ++parameter) {
      HEADRACE_TRY(no_readers_left(rank, own_place(rank, Region::shard, parameter)));
    }
    // The caller may have changed its parameters before it calls again.
    const std::uint32_t next = state(rank).uses[index] + 1;
    memory_.fill_shard(rank, index, use(index, next), caller(rank, index, next));
    return {};
  }

  Status sources_consumed(int rank) {
    for (std::size_t parameter = 0; parameter < collective(rank).group.parameters.size();
         ++parameter) {
      HEADRACE_TRY(no_readers_left(rank, own_place(rank, Region::gradient, parameter)));
    }
    state(rank).gradients_given_back = true;
    return {};
  }

  Status complete(int rank) {
    for (std::size_t at = 0; at < k_lanes; ++at) {
      const Epoch last = state(rank).lanes[kind(collective(rank)) * k_lanes + at].now();
      if (!lane(rank).knows(last)) {
        return broken(rank, fmt::format("is reached without an order to {}", who(last)));
      }
    }
    return collective(rank).kind == CollectiveKind::reduce_scatter ? output(rank) : Status();
  }

  Status output(int rank) {
    const std::size_t index = collective_index(rank);
    const AddressMap& map = memory_.map(index);
    std::vector<std::pair<std::size_t, std::uint32_t>> sums;  // where another expression starts
    for (std::size_t parameter = 0; parameter < map.parameters(); ++parameter) {
      const Place place = own_place(rank, Region::output, 0, map.accumulator_offset(parameter));
      const std::size_t bytes = map.shard_elements(parameter, rank) * sizeof(float);
      HEADRACE_TRY(caller_reads(rank, place, bytes,
                                {.kind = Value::Kind::data,
                                 .finished = true,
                                 .item_bytes = sizeof(float),
                                 .use = use(rank),
                                 .parameter = static_cast<std::uint32_t>(parameter),
                                 .element = memory_.first_element(index, parameter, rank)}));
      for (const Segment& segment :
           memory(rank, place, rank).range(place.offset, place.offset + bytes)) {
        if (sums.empty() || sums.back().second != segment.value.expression) {
          sums.emplace_back(segment.begin, segment.value.expression);
        }
      }
    }
    auto& first = state(rank).sums[index];
    if (state(rank).uses[index] == 0) {
      first = std::move(sums);
    } else if (sums != first) {
      return broken(rank, "the output is summed in another order than in the first call");
    }
    return {};
  }

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

}  // namespace

Status schedule_check(const Topology& topology, const Collective& collective, std::size_t calls) {
  const std::vector<std::vector<std::size_t>> all(static_cast<std::size_t>(topology.world_size()),
                                                  std::vector<std::size_t>(calls, 0));
  return schedule_check(topology, {&collective, 1}, all);
}

Status schedule_check(const Topology& topology, std::span<const Collective> collectives,
                      std::span<const std::vector<std::size_t>> calls) {
  const auto world = static_cast<std::size_t>(topology.world_size());
  if (calls.size() != world) {
    return operation_error(fmt::format("calls of {} of {} ranks", calls.size(), world));
  }
  std::vector<UserDTypes> dtypes;
  for (const Collective& collective : collectives) {
    if (collective.programs.size() != world) {
      return operation_error(
          fmt::format("programs of {} of {} ranks", collective.programs.size(), world));
    }
    for (std::size_t rank = 0; rank < world; ++rank) {
      HEADRACE_TRY(program_check(topology, collective.group, collective.kind, collective.shape,
                                 static_cast<int>(rank), collective.programs[rank]));
    }
    HEADRACE_TRY(check_totals(collective));
    HEADRACE_TRY_ASSIGN(UserDTypes named, user_dtypes(collective));
    dtypes.push_back(std::move(named));
  }
  return ScheduleRun(topology, collectives, calls, dtypes).run();
}

}  // namespace headrace
