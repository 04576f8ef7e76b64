#include "plan/schedule_check.h"

#include <fmt/format.h>

#include <map>
#include <tuple>

#include "plan/program_check.h"
#include "plan/schedule_run.h"

namespace headrace {
namespace {

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
