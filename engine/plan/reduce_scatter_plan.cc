#include "plan/reduce_scatter_plan.h"

#include <utility>
#include <vector>

#include "plan/node_reduction.h"
#include "plan/program_builder.h"
#include "plan/rail_exchange.h"

namespace headrace {
namespace {

void reduce_one_node(const ReduceScatterLayout& layout, int rank, ProgramBuilder& builder) {
  const Topology& topology = layout.topology();
  std::vector<OwnedSum> owned;
  for (int local = 0; local < topology.local_ranks(); ++local) {
    owned.push_back({.stretch = {.begin = 0, .end = layout.output().elements()},
                     .first_rank = local,
                     .ranks = 1});
  }
  NodeReduction reduction(layout, rank, builder);
  reduction.reduce(owned, {.place = {.local = topology.local_of(rank), .region = Region::output}},
                   /*finish=*/true);
  reduction.end();
  builder.mark(Lane::local, Milestone::sources_consumed);
}

}  // namespace

Result<ScheduleShape> reduce_scatter_shape(const Topology& topology, const GroupSpec& group,
                                           const ReduceScatterOptions& options) {
  HEADRACE_TRY_ASSIGN(const ReduceScatterLayout layout,
                      ReduceScatterLayout::make(topology, group, options));
  return layout.shape();
}

Result<RankProgram> reduce_scatter_program(const Topology& topology, const GroupSpec& group,
                                           const ReduceScatterOptions& options, int rank) {
  HEADRACE_TRY_ASSIGN(const ReduceScatterLayout layout,
                      ReduceScatterLayout::make(topology, group, options));
  ProgramBuilder builder;
  if (layout.output().elements() == 0) {
    builder.mark(Lane::local, Milestone::sources_consumed);
  } else if (topology.nodes() == 1) {
    reduce_one_node(layout, rank, builder);
  } else {
    RailExchange(layout, rank, builder).run();
  }
  builder.mark(Lane::complete, Milestone::complete, builder.last(Lane::local));
  return std::move(builder).take();
}

}  // namespace headrace
