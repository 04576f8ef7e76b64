#include "plan/schedule_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/program_check.h"

namespace headrace {
namespace {

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

}  // namespace

ScheduleRun::ScheduleRun(const Topology& topology, std::span<const Collective> collectives,
                         std::span<const std::vector<std::size_t>> calls,
                         std::span<const UserDTypes> dtypes)
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
      state.lanes.emplace_back(static_cast<std::uint32_t>(rank * k_kinds * k_lanes + lane), lanes);
    }
    state.raised_before.resize(world);
    state.uses.assign(collectives.size(), 0);
    state.sums.resize(collectives.size());
  }
}

Status ScheduleRun::run() {
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

Epoch ScheduleRun::caller(int rank, std::size_t collective, std::uint32_t uses) const {
  return {static_cast<std::uint32_t>(
              first_user_lane_ + static_cast<std::size_t>(rank) * collectives_.size() + collective),
          uses + 1};
}

std::string ScheduleRun::here(int rank) const {
  return fmt::format("{} of call {} ({} of {})", describe(rank, state(rank).position, op(rank)),
                     state(rank).call, to_string(collective(rank).kind),
                     collective(rank).group.name);
}

std::string ScheduleRun::who(Epoch epoch) const {
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
  return fmt::format("{} of call {}",
                     describe(static_cast<int>(rank), position, its.programs[rank].ops[position]),
                     call);
}

Error ScheduleRun::broken(int rank, const std::string& rule) const {
  Error error = operation_error(here(rank) + ": " + rule);
  error.rank = rank;
  return error;
}

std::string ScheduleRun::name(int rank, const Place& place, std::size_t begin,
                              std::size_t end) const {
  std::string region = to_string(place.region);
  if (is_user(place.region) && place.region != Region::output) {
    region += fmt::format(" {}", place.index);
  }
  return fmt::format("bytes [{}, {}) of {} of rank {}", begin, end, region,
                     topology_.rank_of(topology_.node_of(rank), place.local));
}

std::string ScheduleRun::holds(const Value& value) const {
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

Error ScheduleRun::stuck(int rank) const {
  const Op& wait = op(rank);
  std::string peer = fmt::format("rank {} has ended", wait.peer);
  if (!ended(wait.peer)) {
    peer = fmt::format("{} waits for rank {}", here(wait.peer), op(wait.peer).peer);
  }
  return broken(rank, fmt::format("waits for ever for signal {} of rank {} to reach {}: {}",
                                  wait.signal, wait.peer, wanted(rank), peer));
}

void ScheduleRun::begin_call(int rank) {
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

void ScheduleRun::end_call(int rank) {
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

Status ScheduleRun::advance(int rank) {
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

std::uint64_t ScheduleRun::wanted(int rank) const {
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

Status ScheduleRun::raise(int rank) {
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

Status ScheduleRun::perform(int rank) {
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

}  // namespace headrace
