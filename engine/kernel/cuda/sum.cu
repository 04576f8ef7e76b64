#include <array>
#include <climits>
#include <string>
#include <vector>

#include "kernel/cuda/launch.h"
#include "kernel/cuda/sum.h"
#include "kernel/cuda/sum_groups.cuh"
#include "kernel/cuda/sum_table.h"
#include "kernel/cuda/zero.h"

namespace headrace {
namespace {

/// Rows from which the pipeline of the bulk method has something to run ahead of.
constexpr std::size_t k_bulk_elements = 16 * 1024;
/// Warps count tiles, of which a row has one at least, in 32 bits.
constexpr std::size_t k_most_rows = INT_MAX;

SumKind kind_of(const SumJob& job) {
  const DType first = job.sources.front().dtype;
  for (const SourceRows& source : job.sources) {
    if (source.dtype != first) {
      return SumKind::mixed;
    }
  }
  return first == DType::float32 ? SumKind::float32 : SumKind::bfloat16;
}

SumTable table_of(const SumJob& job) {
  std::vector<Operand> operands;
  for (const SourceRows& source : job.sources) {
    operands.push_back({source.address, item_size(source.dtype), job.rows > 1 ? source.pitch : 0});
  }
  operands.push_back({job.to, sizeof(float), job.rows > 1 ? job.to_pitch : 0});
  const std::size_t lead = best_lead(operands, k_sum_group);

  SumTable table;
  table.count = static_cast<unsigned>(job.sources.size());
  table.kind = kind_of(job);
  table.add = job.add;
  table.to = access(operands.back(), lead, k_sum_group);
  table.to_pitch = operands.back().pitch;
  table.full = table.to.full;
  for (unsigned s = 0; s < table.count; ++s) {
    const Access from = access(operands[s], lead, k_sum_group);
    table.sources[s] = {.base = from.base,
                        .pitch = operands[s].pitch,
                        .width = static_cast<std::uint8_t>(from.width),
                        .dtype = job.sources[s].dtype};
    table.full = table.full && from.full;
  }
  table.row = {lead, lead + job.elements};
  table.rows = static_cast<unsigned>(job.rows);
  table.scale = job.scale;
  return table;
}

template <SumKind kind>
constexpr DType k_dtype = kind == SumKind::float32 ? DType::float32 : DType::bfloat16;

/// Adds all sources, `batch` of them loaded before the first is added.
template <SumKind kind, unsigned unroll, unsigned batch>
__device__ __forceinline__ void add_sources(SumFloats (&totals)[unroll], const SumTable& table,
                                            unsigned row, std::size_t group) {
  using Loaded = Packed<k_dtype<kind>, k_sum_group>;
#pragma unroll 1
  for (unsigned first = 0; first < table.count; first += batch) {
    Loaded loaded[batch][unroll] = {};
#pragma unroll
    for (unsigned s = 0; s < batch; ++s) {
      if (first + s < table.count) {
        const SumSource& source = table.sources[first + s];
        const std::uintptr_t from = source.base + row * source.pitch + group * sizeof(Loaded);
#pragma unroll
        for (unsigned i = 0; i < unroll; ++i) {
          loaded[s][i] = load_vector<sizeof(Loaded)>(from + i * k_warp * sizeof(Loaded));
        }
      }
    }
#pragma unroll
    for (unsigned s = 0; s < batch; ++s) {
      if (first + s < table.count) {
#pragma unroll
        for (unsigned i = 0; i < unroll; ++i) {
          totals[i] = plus(totals[i], unpack<k_dtype<kind>, k_sum_group>(loaded[s][i]));
        }
      }
    }
  }
}

__device__ __forceinline__ void add_mixed_sources(SumFloats& total, const SumTable& table,
                                                  unsigned row, std::size_t group) {
  for (unsigned s = 0; s < table.count; ++s) {
    const SumSource& source = table.sources[s];
    const std::uintptr_t from = group_address(source, row, group);
    total = plus(total, source.dtype == DType::float32
                            ? unpack<DType::float32, k_sum_group>(load_vector<32>(from))
                            : unpack<DType::bfloat16, k_sum_group>(load_vector<16>(from)));
  }
}

/// Groups group, group + 32, ... of a row, all whole, by full vectors.
template <SumKind kind, bool add, unsigned unroll, unsigned batch>
__device__ __forceinline__ void sum_whole_groups(const SumTable& table, unsigned row,
                                                 std::size_t group) {
  const std::uintptr_t to = to_address(table, row, group);
  SumFloats before[unroll] = {};
  SumFloats totals[unroll];
#pragma unroll
  for (unsigned i = 0; i < unroll; ++i) {
    totals[i] = no_sum();
    if constexpr (add) {
      before[i] = unpack<DType::float32, k_sum_group>(
          load_vector<k_sum_to_bytes>(to + i * k_warp * k_sum_to_bytes));
    }
  }
  if constexpr (kind == SumKind::mixed) {
#pragma unroll
    for (unsigned i = 0; i < unroll; ++i) {
      add_mixed_sources(totals[i], table, row, group + i * k_warp);
    }
  } else {
    add_sources<kind, unroll, batch>(totals, table, row, group);
  }
#pragma unroll
  for (unsigned i = 0; i < unroll; ++i) {
    store_vector(to + i * k_warp * k_sum_to_bytes,
                 pack<DType::float32>(scaled_sum<add>(table.scale, totals[i], before[i])));
  }
}

template <SumKind kind, bool add, unsigned unroll, unsigned batch>
__global__ void __launch_bounds__(k_block_threads, k_blocks_per_multiprocessor)
    sum_kernel(const __grid_constant__ SumTable table) {
  constexpr unsigned k_tile = k_warp * unroll;
  const unsigned tiles = table.rows * table.tiles_per_row;
  for (unsigned tile = warp_of_grid(); tile < tiles; tile += warps_of_grid()) {
    const unsigned row = table.rows == 1 ? 0 : tile / table.tiles_per_row;
    const std::size_t first = std::size_t{tile - row * table.tiles_per_row} * k_tile;
    const std::size_t own = first + lane_of_warp();
    if (table.full && all_whole<k_sum_group>(table.row, first, k_tile)) {
      sum_whole_groups<kind, add, unroll, batch>(table, row, own);
      continue;
    }
#pragma unroll 1
    for (unsigned i = 0; i < unroll; ++i) {
      const Part part = part_of<k_sum_group>(table.row, own + i * k_warp);
      if (table.full && part.end - part.begin == k_sum_group) {
        sum_whole_groups<kind, add, 1, batch>(table, row, own + i * k_warp);
      } else if (part.begin < part.end) {
        sum_part<add>(table, row, own + i * k_warp, part);
      }
    }
  }
}

// Vectors of 16 bytes that a thread has in flight.
constexpr unsigned k_in_flight = 8;

template <SumKind kind, bool add, unsigned unroll>
Status launch_plain(cudaStream_t stream, SumTable& table, int blocks) {
  constexpr unsigned k_vectors = k_sum_group * k_item<k_dtype<kind>> / k_vector_bytes;
  table.tiles_per_row = static_cast<unsigned>(warp_tiles<k_sum_group, unroll>(table.row));
  const std::size_t tiles = std::size_t{table.rows} * table.tiles_per_row;
  return launch("launch of the sum kernel", stream, {blocks_for(tiles, blocks)},
                sum_kernel<kind, add, unroll, k_in_flight / unroll / k_vectors>, table);
}

/// With few sources a thread takes two groups, to have as many loads in flight; where it adds it
/// loads the destination too.
template <SumKind kind>
Status launch_plain(cudaStream_t stream, SumTable& table, int blocks) {
  constexpr unsigned k_vectors = k_sum_group * k_item<k_dtype<kind>> / k_vector_bytes;
  if (table.add) {
    return launch_plain<kind, true, 1>(stream, table, blocks);
  }
  return kind != SumKind::mixed && table.count * k_vectors <= k_in_flight / 2
             ? launch_plain<kind, false, kind == SumKind::mixed ? 1 : 2>(stream, table, blocks)
             : launch_plain<kind, false, 1>(stream, table, blocks);
}

}  // namespace

Status launch_sum_plain(cudaStream_t stream, SumTable& table, int blocks) {
  switch (table.kind) {
    case SumKind::float32:
      return launch_plain<SumKind::float32>(stream, table, blocks);
    case SumKind::bfloat16:
      return launch_plain<SumKind::bfloat16>(stream, table, blocks);
    case SumKind::mixed:
      break;
  }
  return launch_plain<SumKind::mixed>(stream, table, blocks);
}

Status launch_sum(cudaStream_t stream, const SumJob& job, SumMethod method, int blocks) {
  if (job.rows == 0 || job.elements == 0 || (job.sources.empty() && job.add)) {
    return {};
  }
  if (job.sources.empty()) {
    return launch_zero(stream, job.to, job.to_pitch, job.elements * sizeof(float), job.rows);
  }
  if (job.sources.size() > k_max_sum_sources) {
    return operation_error("a sum of " + std::to_string(job.sources.size()) +
                           " sources; a device sums " + std::to_string(k_max_sum_sources) +
                           " at most in one call");
  }
  if (job.rows > k_most_rows) {
    return operation_error("a sum of " + std::to_string(job.rows) + " rows; a device sums " +
                           std::to_string(k_most_rows) + " at most in one call");
  }
  SumTable table = table_of(job);
  if (method == SumMethod::plain) {
    return launch_sum_plain(stream, table, blocks);
  }
  HEADRACE_TRY_ASSIGN(const bool possible, bulk_sum_possible(table));
  if (method == SumMethod::bulk) {
    return possible ? launch_sum_bulk(stream, table, blocks)
                    : operation_error(
                          "this sum has no bulk method: it needs sm_90, rows aligned "
                          "alike to 16 bytes, and tiles that fit shared memory");
  }
  return possible && job.elements >= k_bulk_elements ? launch_sum_bulk(stream, table, blocks)
                                                     : launch_sum_plain(stream, table, blocks);
}

}  // namespace headrace
