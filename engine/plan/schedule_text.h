#pragma once

#include <string>

#include "plan/topology.h"
#include "plan/wave_plan.h"

namespace headrace {

/// Tables for people. Lines end in "\n".

/// The rounds of an all-gather, and the shards that each node holds after each.
std::string all_gather_text(const Topology& topology);
/// What one rank sends and receives, round by round.
std::string all_gather_text(const Topology& topology, int rank);

/// The waves and rounds of a reduce-scatter, and where the partials for one node lie on it.
std::string reduce_scatter_text(const WavePlan& plan, int destination_node);
/// What one rank sends and receives, round by round, and what it combines.
std::string reduce_scatter_rank_text(const WavePlan& plan, int rank);

}  // namespace headrace
