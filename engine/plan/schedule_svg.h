#pragma once

#include <string>

#include "plan/topology.h"
#include "plan/wave_plan.h"

namespace headrace {

/// Pictures after figures 5a and 6b of the TIDE paper: complete SVG documents, one colour a node.

/// A column a node and a row a round, with the shards that the node holds then.
std::string all_gather_svg(const Topology& topology);

/// For each wave, local ranks of the destination by sub-slices, with the node whose partial lies
/// there: what one combine adds is a column.
std::string reduce_scatter_svg(const WavePlan& plan, int destination_node);

}  // namespace headrace
