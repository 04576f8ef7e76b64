#pragma once

#include "base/result.h"
#include "plan/model_spec.h"
#include "plan/reduce_scatter_layout.h"
#include "plan/schedule.h"
#include "plan/topology.h"

namespace headrace {

/// Reduce-scatter after the TIDE paper, section 4 and appendix E: gradients are read where autograd
/// left them and summed in fp32, first over the node, then over nodes; rank r's real rows end in
/// its packed output. See `NodeReduction` and `RailExchange` for the order of operations. One node:
/// each rank sums its own output directly.
///
/// Operand grouping, and with it every bit, depends on the topology and the wave width alone:
/// - a node partial is the sum over the node's other local ranks in their order, then the own
///   gradient, on local rank (s - c') mod L for sub-slice s and contributor c;
/// - a wave's partials are added in the order of the local ranks that hold them, times alpha, and
///   waves in their order.
///
/// Errors: options out of range or not fitting the group, colliding waves.
Result<ScheduleShape> reduce_scatter_shape(const Topology& topology, const GroupSpec& group,
                                           const ReduceScatterOptions& options);

/// The part of one rank; the programs of all ranks pass `schedule_check`.
///
/// Level 1 takes at most (L - 1) P M copies and short tails, where no parameter's part of a
/// sub-slice is larger than a chunk.
Result<RankProgram> reduce_scatter_program(const Topology& topology, const GroupSpec& group,
                                           const ReduceScatterOptions& options, int rank);

}  // namespace headrace
