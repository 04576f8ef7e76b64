#pragma once

#include <vector>

#include "collective/on_demand.h"

namespace headrace {

/// Zeroes the accumulators that `dirty[group][slot]` names, copies or casts this rank's shards into
/// its arena, and shows every rank that each group is ready for `digest.epoch`, group after group.
/// First waits until every rank has finished the epoch before, so that nobody still reads or adds.
/// `sources[g][p]` belongs to parameter p of group g.
///
/// For a bracket in lockstep nothing is zeroed or written, and this returns once all ranks have
/// entered the same bracket.
Status publish(const OnDemand& on_demand, const BracketDigest& digest,
               const std::vector<std::vector<ShardSource>>& sources,
               const std::vector<std::vector<bool>>& dirty);

/// Waits until `owner` has published `group` for our epoch and, at the first time in an epoch,
/// compares its digest.
Status wait_for_published(const OnDemand& on_demand, const BracketDigest& digest, int owner,
                          std::size_t group);

}  // namespace headrace
