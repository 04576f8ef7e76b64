

#include <vector>

#include "kernel/cuda/copy.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/vector.cuh"
#include "kernel/cuda/warp_tiles.cuh"

namespace headrace {
namespace {

// Elements are bytes here.
constexpr unsigned k_group = k_vector_bytes;
constexpr unsigned k_unroll = 8;

struct Segment {
  Access to;
  Access from;
  GroupedRow row;

  std::size_t tiles() const { return warp_tiles<k_group, k_unroll>(row); }
};

Segment segment_of(const CopySegment& segment) {
  const Operand operands[] = {{segment.to, 1}, {segment.from, 1}};
  const std::size_t lead = best_lead(operands, k_group);
  return {access(operands[0], lead, k_group), access(operands[1], lead, k_group),
          GroupedRow{lead, lead + segment.bytes}};
}

// All bytes are loaded before the first is stored.
__device__ void copy_part(std::uintptr_t to, std::uintptr_t from, Part part) {
  std::uint8_t bytes[k_group] = {};
#pragma unroll
  for (unsigned i = 0; i < k_group; ++i) {
    if (i >= part.begin && i < part.end) {
      bytes[i] = reinterpret_cast<const std::uint8_t*>(from)[i];
    }
  }
#pragma unroll
  for (unsigned i = 0; i < k_group; ++i) {
    if (i >= part.begin && i < part.end) {
      reinterpret_cast<std::uint8_t*>(to)[i] = bytes[i];
    }
  }
}

template <class Table>
__global__ void __launch_bounds__(k_block_threads, k_blocks_per_multiprocessor)
    copy_kernel(const __grid_constant__ Table table) {
  for_each_tile(table, [](const Segment& segment, std::size_t tile) {
    run_tile<k_group, k_unroll>(
        segment.row, tile, segment.to.full && segment.from.full,
        [&](std::size_t group) {
          return load_vector<k_group>(segment.from.base + group * k_group);
        },
        [&](std::size_t group, const Vector<k_group>& vector) {
          store_vector(segment.to.base + group * k_group, vector);
        },
        [&](std::size_t group, Part part) {
          const std::uintptr_t to = segment.to.base + group * k_group;
          const std::uintptr_t from = segment.from.base + group * k_group;
          if (part.end - part.begin == k_group) {
            store_vector(to, load_vector<k_group>(from, segment.from.width), segment.to.width);
          } else {
            copy_part(to, from, part);
          }
        });
  });
}

}  // namespace

Status copy_blocks(cudaStream_t stream, std::span<const CopySegment> segments, int blocks) {
  std::vector<Segment> table_segments;
  for (const CopySegment& segment : segments) {
    if (segment.bytes > 0) {
      table_segments.push_back(segment_of(segment));
    }
  }
  return in_tables(std::span<const Segment>(table_segments), [&](const auto& table) {
    return launch("launch of the copy kernel", stream, {blocks_for(table.tiles(), blocks)},
                  copy_kernel<std::decay_t<decltype(table)>>, table);
  });
}

}  // namespace headrace
