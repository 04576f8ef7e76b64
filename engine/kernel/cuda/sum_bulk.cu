#include <algorithm>

#include "kernel/cuda/bulk_copy.cuh"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/sum_groups.cuh"
#include "kernel/cuda/sum_table.h"

namespace headrace {
namespace {

// One warp announces and starts the copies, the others sum what has arrived: two groups at a time,
// which gives each thread enough independent work.
constexpr unsigned k_consumer_warps = 8;
constexpr unsigned k_consumers = k_consumer_warps * k_warp;
constexpr unsigned k_at_once = 2;
constexpr unsigned k_sources_at_once = 8;
constexpr unsigned k_bulk_threads = k_consumers + k_warp;

// Tiles in flight. With fewer than two, copying and adding would take turns.
constexpr unsigned k_least_stages = 2;
constexpr unsigned k_aimed_stages = 3;
constexpr unsigned k_most_stages = 4;

// Elements of a tile: each consumer takes its groups a pass. Smaller tiles where the sources are
// many, or so that every block gets a few.
constexpr unsigned k_pass = k_consumers * k_at_once * k_sum_group;
constexpr unsigned k_most_elements = 2 * k_pass;
constexpr unsigned k_element_step = k_warp * k_sum_group;
constexpr unsigned k_tiles_per_block = 4;
/// Shared memory left for barriers and what the system reserves.
constexpr unsigned k_shared_reserve = 2 * 1024;

struct Pipeline {
  unsigned elements = 0;  ///< a tile
  unsigned stages = 0;
  unsigned stage_bytes = 0;
};

struct Barriers {
  Barrier full[k_most_stages];   ///< the tile's bytes have come
  Barrier empty[k_most_stages];  ///< every consumer is done with them
};

/// The groups of a tile that lie wholly in the row, counted in the row; those alone are copied.
struct WholeGroups {
  std::size_t first = 0;
  unsigned count = 0;
};

__device__ __forceinline__ WholeGroups whole_groups(GroupedRow row, std::size_t first,
                                                    unsigned groups) {
  const std::size_t begin = first + (first == 0 && row.lead > 0 ? 1 : 0);
  const std::size_t end = min(first + groups, row.end / k_sum_group);
  return {begin, end > begin ? static_cast<unsigned>(end - begin) : 0};
}

struct Tile {
  unsigned row;
  std::size_t first;  ///< group
};

__device__ __forceinline__ Tile tile_at(const SumTable& table, unsigned groups, unsigned index) {
  const unsigned row = table.rows == 1 ? 0 : index / table.tiles_per_row;
  return {row, std::size_t{index - row * table.tiles_per_row} * groups};
}

#if __CUDA_ARCH__ >= 900
/// The producer warp: a lane a source.
__device__ __forceinline__ void produce(const SumTable& table, const Pipeline& pipeline,
                                        Barriers& barriers, std::byte* stages) {
  const unsigned groups = pipeline.elements / k_sum_group;
  const unsigned tiles = table.rows * table.tiles_per_row;
  const unsigned element_bytes = pipeline.stage_bytes / pipeline.elements;
  unsigned stage = 0;
  unsigned round = 0;
  for (unsigned index = blockIdx.x; index < tiles; index += gridDim.x) {
    const Tile tile = tile_at(table, groups, index);
    const WholeGroups whole = whole_groups(table.row, tile.first, groups);
    // Before its first round a stage counts as emptied in the phase before the barrier's first.
    wait_for(&barriers.empty[stage], (round + 1) % 2);
    if (lane_of_warp() == 0) {
      arrive_expecting(&barriers.full[stage], whole.count * k_sum_group * element_bytes);
    }
    __syncwarp();
    if (whole.count > 0) {
      for (unsigned s = lane_of_warp(); s < table.count; s += k_warp) {
        const SumSource& source = table.sources[s];
        const unsigned group_bytes = k_sum_group * (source.dtype == DType::float32 ? 4 : 2);
        const auto skipped = static_cast<unsigned>(whole.first - tile.first);
        copy_bulk(stages + stage * pipeline.stage_bytes + source.offset + skipped * group_bytes,
                  group_address(source, tile.row, whole.first), whole.count * group_bytes,
                  &barriers.full[stage]);
      }
    }
    if (++stage == pipeline.stages) {
      stage = 0;
      ++round;
    }
  }
}

template <DType dtype>
__device__ __forceinline__ Packed<dtype, k_sum_group> load_shared(const std::byte* from) {
  const uint4* quads = reinterpret_cast<const uint4*>(from);
  if constexpr (dtype == DType::bfloat16) {
    return {{quads->x, quads->y, quads->z, quads->w}};
  } else {
    // Two halves of 16 bytes, read in an order that spreads eight neighbouring lanes over all
    // banks.
    const unsigned swap = lane_of_warp() / 4 % 2;
    const uint4 a = quads[swap];
    const uint4 b = quads[1 - swap];
    const uint4 low = swap == 0 ? a : b;
    const uint4 high = swap == 0 ? b : a;
    return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
  }
}

/// The values of one source in groups `at`, `at` + k_consumers, ..., added to `totals`.
template <DType dtype, unsigned n>
__device__ __forceinline__ void add_source(const std::byte* tile, unsigned at,
                                           SumFloats (&totals)[n]) {
  constexpr unsigned k_group_bytes = sizeof(Packed<dtype, k_sum_group>);
  Packed<dtype, k_sum_group> packed[n];
#pragma unroll
  for (unsigned i = 0; i < n; ++i) {
    packed[i] = load_shared<dtype>(tile + (at + i * k_consumers) * k_group_bytes);
  }
#pragma unroll
  for (unsigned i = 0; i < n; ++i) {
    totals[i] = plus(totals[i], unpack<dtype, k_sum_group>(packed[i]));
  }
}

/// Groups `at`, `at` + k_consumers, ... of the tile whose sources lie at `stage`: `n` whole ones.
template <SumKind kind, bool add, unsigned n>
__device__ __forceinline__ void sum_groups(const SumTable& table, const std::byte* stage,
                                           const Tile& tile, unsigned at) {
  std::uintptr_t to[n];
  SumFloats before[n] = {};
  SumFloats totals[n];
#pragma unroll
  for (unsigned i = 0; i < n; ++i) {
    to[i] = to_address(table, tile.row, tile.first + at + i * k_consumers);
    if constexpr (add) {
      before[i] = unpack<DType::float32, k_sum_group>(load_vector<k_sum_to_bytes>(to[i]));
    }
    totals[i] = no_sum();
  }
#pragma unroll k_sources_at_once
  for (unsigned s = 0; s < table.count; ++s) {
    const SumSource& source = table.sources[s];
    const bool fp32 = kind == SumKind::mixed ? source.dtype == DType::float32  //
                                             : kind == SumKind::float32;
    fp32 ? add_source<DType::float32>(stage + source.offset, at, totals)
         : add_source<DType::bfloat16>(stage + source.offset, at, totals);
  }
#pragma unroll
  for (unsigned i = 0; i < n; ++i) {
    store_vector(to[i], pack<DType::float32>(scaled_sum<add>(table.scale, totals[i], before[i])));
  }
}

template <SumKind kind, bool add>
__device__ __forceinline__ void consume(const SumTable& table, const Pipeline& pipeline,
                                        Barriers& barriers, const std::byte* stages) {
  const unsigned consumer = threadIdx.x - k_warp;
  const unsigned groups = pipeline.elements / k_sum_group;
  const unsigned tiles = table.rows * table.tiles_per_row;
  unsigned stage = 0;
  unsigned round = 0;
  for (unsigned index = blockIdx.x; index < tiles; index += gridDim.x) {
    const Tile tile = tile_at(table, groups, index);
    wait_for(&barriers.full[stage], round % 2);
    const std::byte* from = stages + stage * pipeline.stage_bytes;
    unsigned at = consumer;
    for (; at + (k_at_once - 1) * k_consumers < groups &&
           all_whole<k_sum_group>(table.row, tile.first + at, (k_at_once - 1) * k_consumers + 1);
         at += k_at_once * k_consumers) {
      sum_groups<kind, add, k_at_once>(table, from, tile, at);
    }
    for (; at < groups; at += k_consumers) {
      const std::size_t group = tile.first + at;
      const Part part = part_of<k_sum_group>(table.row, group);
      if (part.end - part.begin == k_sum_group) {
        sum_groups<kind, add, 1>(table, from, tile, at);
      } else if (part.begin < part.end) {
        sum_part<add>(table, tile.row, group, part);
      }
    }
    arrive(&barriers.empty[stage]);
    if (++stage == pipeline.stages) {
      stage = 0;
      ++round;
    }
  }
}
#endif

template <SumKind kind, bool add>
__global__ void __launch_bounds__(k_bulk_threads, 1)
    sum_bulk_kernel(const __grid_constant__ SumTable table,
                    const __grid_constant__ Pipeline pipeline) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::byte stages[];
  __shared__ Barriers barriers;
  if (threadIdx.x == 0) {
    for (unsigned stage = 0; stage < pipeline.stages; ++stage) {
      make_barrier(&barriers.full[stage], 1);
      make_barrier(&barriers.empty[stage], k_consumers);
    }
    barriers_made();
  }
  __syncthreads();
  if (threadIdx.x < k_warp) {
    produce(table, pipeline, barriers, stages);
  } else {
    consume<kind, add>(table, pipeline, barriers, stages);
  }
#endif
}

using Kernel = void (*)(SumTable, Pipeline);

template <SumKind kind>
Kernel kernel_of(bool add) {
  return add ? sum_bulk_kernel<kind, true> : sum_bulk_kernel<kind, false>;
}

Kernel kernel_of(SumKind kind, bool add) {
  switch (kind) {
    case SumKind::float32:
      return kernel_of<SumKind::float32>(add);
    case SumKind::bfloat16:
      return kernel_of<SumKind::bfloat16>(add);
    case SumKind::mixed:
      break;
  }
  return kernel_of<SumKind::mixed>(add);
}

unsigned element_bytes_of(const SumTable& table) {
  unsigned bytes = 0;
  for (unsigned s = 0; s < table.count; ++s) {
    bytes += static_cast<unsigned>(item_size(table.sources[s].dtype));
  }
  return bytes;
}

Result<unsigned> shared_bytes() {
  HEADRACE_TRY_ASSIGN(const int bytes, device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  return static_cast<unsigned>(bytes) - k_shared_reserve;
}

/// Whole passes where a tile holds one, so that no consumer idles.
unsigned round_down(unsigned elements) {
  const unsigned step = elements >= k_pass ? k_pass : k_element_step;
  return elements / step * step;
}

Pipeline pipeline_of(unsigned element_bytes, unsigned shared, std::size_t elements,
                     unsigned blocks) {
  const std::size_t share = elements / (std::size_t{blocks} * k_tiles_per_block);
  const unsigned most = static_cast<unsigned>(std::min<std::size_t>(
      {shared / k_aimed_stages / element_bytes, k_most_elements, std::max<std::size_t>(share, 1)}));
  Pipeline pipeline;
  pipeline.elements = std::max(round_down(most), k_element_step);
  pipeline.stage_bytes = pipeline.elements * element_bytes;
  pipeline.stages = std::min(shared / pipeline.stage_bytes, k_most_stages);
  return pipeline;
}

}  // namespace

Result<bool> bulk_sum_possible(const SumTable& table) {
  if (!table.full) {
    return false;
  }
  HEADRACE_TRY_ASSIGN(const int capability, compute_capability());
  if (capability < k_hopper) {
    return false;
  }
  HEADRACE_TRY_ASSIGN(const unsigned shared, shared_bytes());
  return shared >= k_least_stages * k_element_step * element_bytes_of(table);
}

Status launch_sum_bulk(cudaStream_t stream, SumTable& table, int blocks) {
  HEADRACE_TRY_ASSIGN(const unsigned shared, shared_bytes());
  HEADRACE_TRY_ASSIGN(const int multiprocessors, device_attribute(cudaDevAttrMultiProcessorCount));
  const auto most_blocks = static_cast<unsigned>(std::clamp(blocks, 1, multiprocessors));
  const std::size_t row_elements = groups_of<k_sum_group>(table.row) * k_sum_group;
  const Pipeline pipeline =
      pipeline_of(element_bytes_of(table), shared, row_elements * table.rows, most_blocks);
  unsigned offset = 0;
  for (unsigned s = 0; s < table.count; ++s) {
    table.sources[s].offset = offset;
    offset += pipeline.elements * static_cast<unsigned>(item_size(table.sources[s].dtype));
  }
  table.tiles_per_row =
      static_cast<unsigned>((row_elements + pipeline.elements - 1) / pipeline.elements);

  const Kernel kernel = kernel_of(table.kind, table.add);
  const unsigned bytes = pipeline.stages * pipeline.stage_bytes;
  // All that there is, whatever this launch takes: another thread may be about to launch, too.
  HEADRACE_TRY(cuda_status(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                static_cast<int>(shared)),
                           "asking for the shared memory of the sum kernel"));
  const std::size_t tiles = std::size_t{table.rows} * table.tiles_per_row;
  return launch("launch of the bulk sum kernel", stream,
                {.blocks = static_cast<unsigned>(std::min<std::size_t>(most_blocks, tiles)),
                 .threads = k_bulk_threads,
                 .shared_bytes = bytes},
                kernel, table, pipeline);
}

}  // namespace headrace
