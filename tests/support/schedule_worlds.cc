#include "support/schedule_worlds.h"

namespace headrace {

GroupSpec uneven_group(int world) {
  return {.name = "uneven",
          .parameters = {
              {.name = "few", .rows = (world + 1) / 2, .row_elements = 5},
              {.name = "odd", .rows = 2 * world - 1, .row_elements = 3, .dtype = DType::bfloat16},
              {.name = "none", .rows = 0, .row_elements = 7},
              {.name = "even", .rows = world, .row_elements = 2, .dtype = DType::bfloat16}}};
}

Collective all_gather_of(const Topology& topology, const GroupSpec& group,
                         const AllGatherOptions& options) {
  Collective collective{.kind = CollectiveKind::all_gather,
                        .group = group,
                        .shape = all_gather_shape(topology, group, options)};
  for (int rank = 0; rank < topology.world_size(); ++rank) {
    collective.programs.push_back(all_gather_program(topology, group, options, rank));
  }
  return collective;
}

}  // namespace headrace
