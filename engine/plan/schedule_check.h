#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "plan/model_spec.h"
#include "plan/schedule.h"
#include "plan/topology.h"

namespace headrace {

/// One collective of one group, with the programs of all ranks.
struct Collective {
  CollectiveKind kind = CollectiveKind::all_gather;
  GroupSpec group;
  ScheduleShape shape;
  std::vector<RankProgram> programs;
};

/// Enough for every bank to come round and for credits of the call before the last.
inline constexpr std::size_t k_checked_calls = 3;

/// Proves a collective over successive calls, for every timing that lanes, `after` and signals
/// allow, by running the programs of all ranks on symbolic memory:
///
/// - each program passes `program_check`, and both sides of every signal declare the same total,
///   which somebody waits for;
/// - ranks that run their programs in list order never wait for ever (nor then do lanes, which wait
///   for less);
/// - raises of one signal are ordered, so each wait has one producer;
/// - no read or write is unordered with a write of the same bytes, nor a write with a read: nothing
///   is overwritten before its readers are done. The caller takes part: it rewrites the shard once
///   `shard_read` is reached, frees gradients at `sources_consumed`, and reads landing and output
///   at `parameters_ready` and `complete`;
/// - at `parameters_ready` every block of the landing holds the real rows of its owner of this very
///   call, each written once; at `complete` the output holds each rank's gradient rows once,
///   finished once, added in the same order in every call;
/// - `complete` comes after all that the rank does.
///
/// Landing, gradient and output are taken to be free, or filled, when a call begins; arena regions
/// keep what earlier calls left in them. In a region of b banks, call e (counted over the calls of
/// its kind) works on bank e mod b.
///
/// The error names rank, call, operation, place and the broken rule. Time and memory grow with the
/// square of the world, so this is for tests and tools.
Status schedule_check(const Topology& topology, const Collective& collective,
                      std::size_t calls = k_checked_calls);

/// As above for several collectives that share the session's arena and signals: rank r calls
/// collectives[calls[r][0]], then collectives[calls[r][1]], and so on.
Status schedule_check(const Topology& topology, std::span<const Collective> collectives,
                      std::span<const std::vector<std::size_t>> calls);

}  // namespace headrace
