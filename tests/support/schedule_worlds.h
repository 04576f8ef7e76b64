#pragma once

#include "plan/all_gather_plan.h"
#include "plan/schedule_check.h"

namespace headrace {

/// A group of uneven parameters for `world` ranks: one with fewer rows than ranks, odd sizes, both
/// dtypes, one of no rows and one whose last shard is ragged.
GroupSpec uneven_group(int world);

/// The programs of all ranks.
Collective all_gather_of(const Topology& topology, const GroupSpec& group,
                         const AllGatherOptions& options);

}  // namespace headrace
