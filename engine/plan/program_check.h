#pragma once

#include <string>

#include "base/result.h"
#include "plan/model_spec.h"
#include "plan/schedule.h"
#include "plan/topology.h"

namespace headrace {

/// What one program alone can show, in time linear in its size, so that a session can afford it:
/// operations are formed as `schedule.h` says, stay inside the regions and touch only memory that
/// they may (a put, the same local rank of another node; everything else, the node's arenas and
/// this rank's own user regions, of which shard and gradient are only read and landing and output
/// alone are written); signals exist, go up only, and are declared by the totals; each milestone of
/// the kind comes once and `complete` last.
///
/// An error names rank, position of the operation and the broken rule.
Status program_check(const Topology& topology, const GroupSpec& group, CollectiveKind kind,
                     const ScheduleShape& shape, int rank, const RankProgram& program);

/// Whether the region lies in the caller's memory; else it lies in the arena.
constexpr bool is_user(Region region) { return region <= Region::output; }

/// "rank 3, operation 17 (copy)": how errors name an operation.
std::string describe(int rank, std::size_t position, const Op& op);

}  // namespace headrace
