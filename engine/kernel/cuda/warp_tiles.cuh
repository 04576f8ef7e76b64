#pragma once

#include <cstddef>

#include "kernel/job_table.h"
#include "kernel/tiles.h"

// A warp takes a tile at a time: `unroll` runs of 32 neighbouring groups. Warps need nothing of
// each other, so the warps of any number of blocks share the tiles out among them.

namespace headrace {

constexpr unsigned k_warp = 32;
/// Groups of a lane in flight at the ends of a row, where each is checked: the checks take
/// registers.
constexpr unsigned k_checked_unroll = 4;

/// This warp's number in the grid, the same in a register of every lane.
__device__ __forceinline__ unsigned warp_of_grid() {
  const unsigned warp = __shfl_sync(0xFFFFFFFFU, threadIdx.x / k_warp, 0);
  return blockIdx.x * (blockDim.x / k_warp) + warp;
}
__device__ __forceinline__ unsigned warps_of_grid() { return gridDim.x * (blockDim.x / k_warp); }
__device__ __forceinline__ unsigned lane_of_warp() { return threadIdx.x % k_warp; }

template <unsigned group, unsigned unroll>
__host__ __device__ constexpr std::size_t warp_tiles(GroupedRow row) {
  return (groups_of<group>(row) + k_warp * unroll - 1) / (k_warp * unroll);
}

/// Calls body(job, tile of the job) for every tile of this warp.
template <class Table, class Body>
__device__ __forceinline__ void for_each_tile(const Table& table, Body body) {
  const unsigned tiles = table.tiles();
  unsigned job = 0;
  for (unsigned tile = warp_of_grid(); tile < tiles; tile += warps_of_grid()) {
    job = job_of(table.first_tile, table.count, tile, job);
    body(table.jobs[job], tile - table.first_tile[job]);
  }
}

/// finish(group, load(group)) for this lane's groups own, own + 32, ..., all loaded before the
/// first is finished; with `checked`, only for those that lie wholly in the row.
template <unsigned group, unsigned unroll, bool checked, class Load, class Finish>
__device__ __forceinline__ void run_whole_groups(GroupedRow row, std::size_t own, Load load,
                                                 Finish finish) {
  decltype(load(own)) loaded[unroll] = {};
#pragma unroll
  for (unsigned i = 0; i < unroll; ++i) {
    if (!checked || all_whole<group>(row, own + i * k_warp, 1)) {
      loaded[i] = load(own + i * k_warp);
    }
  }
#pragma unroll
  for (unsigned i = 0; i < unroll; ++i) {
    if (!checked || all_whole<group>(row, own + i * k_warp, 1)) {
      finish(own + i * k_warp, loaded[i]);
    }
  }
}

/// Every group of one tile: finish(group, load(group)) for whole groups where `full` says that all
/// operands take full vectors, careful(group, part) for the others.
template <unsigned group, unsigned unroll, class Load, class Finish, class Careful>
__device__ __forceinline__ void run_tile(GroupedRow row, std::size_t tile, bool full, Load load,
                                         Finish finish, Careful careful) {
  const std::size_t first = tile * (k_warp * unroll);
  const std::size_t own = first + lane_of_warp();
  if (full && all_whole<group>(row, first, k_warp * unroll)) {
    return run_whole_groups<group, unroll, false>(row, own, load, finish);
  }
  if (full) {
    constexpr unsigned k_few = unroll < k_checked_unroll ? unroll : k_checked_unroll;
    static_assert(unroll % k_few == 0);
#pragma unroll 1
    for (unsigned i = 0; i < unroll; i += k_few) {
      run_whole_groups<group, k_few, true>(row, own + i * k_warp, load, finish);
    }
  }
#pragma unroll 1
  for (unsigned i = 0; i < unroll; ++i) {
    const Part part = part_of<group>(row, own + i * k_warp);
    const bool done = full && part.end - part.begin == group;
    if (part.begin < part.end && !done) {
      careful(own + i * k_warp, part);
    }
  }
}

}  // namespace headrace
