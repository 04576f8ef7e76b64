#pragma once

#include <vector>

#include "plan/latin_square.h"
#include "plan/reduce_scatter_plan.h"
#include "plan/schedule_check.h"

namespace headrace {

struct WorldSize {
  int nodes;
  int local_ranks;
};

/// Uneven rows, rows for a few ranks only, blocks that end between vectors, and an empty parameter.
inline GroupSpec uneven_group() {
  return {.name = "uneven",
          .parameters = {{.name = "wide", .rows = 37, .row_elements = 12},
                         {.name = "bias", .rows = 3, .row_elements = 1},
                         {.name = "none", .rows = 0, .row_elements = 7},
                         {.name = "odd", .rows = 50, .row_elements = 7},
                         {.name = "even", .rows = 144, .row_elements = 5}}};
}

inline GroupSpec tiny_group() {
  return {.name = "tiny", .parameters = {{.name = "scalar", .rows = 1, .row_elements = 1}}};
}

/// bfloat16 for every parameter but each third.
inline std::vector<DType> mixed_gradients(const GroupSpec& group) {
  std::vector<DType> dtypes;
  for (std::size_t parameter = 0; parameter < group.parameters.size(); ++parameter) {
    dtypes.push_back(parameter % 3 == 2 ? DType::float32 : DType::bfloat16);
  }
  return dtypes;
}

inline Result<Collective> reduce_scatter_collective(const Topology& topology,
                                                    const GroupSpec& group,
                                                    const ReduceScatterOptions& options) {
  Collective collective{.kind = CollectiveKind::reduce_scatter, .group = group};
  HEADRACE_TRY_ASSIGN(collective.shape, reduce_scatter_shape(topology, group, options));
  for (int rank = 0; rank < topology.world_size(); ++rank) {
    HEADRACE_TRY_ASSIGN(RankProgram program,
                        reduce_scatter_program(topology, group, options, rank));
    collective.programs.push_back(std::move(program));
  }
  return collective;
}

/// Those that do not collide.
inline std::vector<int> wave_widths(const Topology& topology) {
  std::vector<int> widths;
  for (int width = 1; width <= topology.local_ranks(); ++width) {
    if (!find_collision(topology, width)) {
      widths.push_back(width);
    }
  }
  return widths;
}

/// Every wave width, small and large chunks, both modes, and so on.
inline std::vector<ReduceScatterOptions> option_samples(const Topology& topology,
                                                        const GroupSpec& group) {
  std::vector<ReduceScatterOptions> samples;
  const ReduceScatterOptions base{.gradients = mixed_gradients(group)};
  for (const int width : wave_widths(topology)) {
    samples.push_back(base);
    samples.back().wave_width = width;
  }
  ReduceScatterOptions slot_reuse = base;
  slot_reuse.mode = GradientMode::slot_reuse;
  slot_reuse.transfers = 1;
  samples.push_back(slot_reuse);
  slot_reuse.transfers = 3;
  slot_reuse.passes = 3;
  slot_reuse.staging_slots = 1;
  slot_reuse.chunk_bytes = 1;
  samples.push_back(slot_reuse);
  ReduceScatterOptions parted = base;
  parted.passes = 4;
  parted.transfers = 2;
  parted.staging_slots = 3;
  parted.chunk_bytes = 300;
  parted.first_signal = 11;
  samples.push_back(parted);
  return samples;
}

}  // namespace headrace
