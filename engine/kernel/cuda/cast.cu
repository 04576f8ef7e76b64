#include <vector>

#include "kernel/cuda/cast.h"
#include "kernel/cuda/copy.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/vector.cuh"
#include "kernel/cuda/warp_tiles.cuh"

namespace headrace {
namespace {

// Four elements: a warp's loads and stores of fp32, most of the bytes, are without gaps.
constexpr unsigned k_group = 4;
constexpr unsigned k_unroll = 8;

struct Conversion {
  Access to;
  Access from;
  GroupedRow row;
  DType from_dtype;  ///< and the other one to

  std::size_t tiles() const { return warp_tiles<k_group, k_unroll>(row); }
};

Conversion conversion_of(const CastJob& job) {
  const Operand operands[] = {{job.to, item_size(job.to_dtype)},
                              {job.from, item_size(job.from_dtype)}};
  const std::size_t lead = best_lead(operands, k_group);
  return {access(operands[0], lead, k_group), access(operands[1], lead, k_group),
          GroupedRow{lead, lead + job.count}, job.from_dtype};
}

template <DType to, DType from>
__device__ void convert_tile(const Conversion& job, std::size_t tile) {
  constexpr unsigned k_to_bytes = sizeof(Packed<to, k_group>);
  constexpr unsigned k_from_bytes = sizeof(Packed<from, k_group>);
  run_tile<k_group, k_unroll>(
      job.row, tile, job.to.full && job.from.full,
      [&](std::size_t group) {
        return load_vector<k_from_bytes>(job.from.base + group * k_from_bytes);
      },
      [&](std::size_t group, const Packed<from, k_group>& packed) {
        store_vector(job.to.base + group * k_to_bytes, pack<to>(unpack<from, k_group>(packed)));
      },
      [&](std::size_t group, Part part) {
        const auto values =
            load_part<from, k_group>(job.from.base + group * k_from_bytes, job.from.width, part);
        store_part<to>(job.to.base + group * k_to_bytes, job.to.width, part, values);
      });
}

template <class Table>
__global__ void __launch_bounds__(k_block_threads, k_blocks_per_multiprocessor)
    cast_kernel(const __grid_constant__ Table table) {
  for_each_tile(table, [](const Conversion& job, std::size_t tile) {
    if (job.from_dtype == DType::bfloat16) {
      convert_tile<DType::float32, DType::bfloat16>(job, tile);
    } else {
      convert_tile<DType::bfloat16, DType::float32>(job, tile);
    }
  });
}

}  // namespace

Status launch_cast(cudaStream_t stream, std::span<const CastJob> jobs, int blocks) {
  std::vector<Conversion> conversions;
  std::vector<CopySegment> copies;
  for (const CastJob& job : jobs) {
    if (job.to_dtype == job.from_dtype) {
      copies.push_back({job.to, job.from, job.count * item_size(job.to_dtype)});
    } else if (job.count > 0) {
      conversions.push_back(conversion_of(job));
    }
  }
  HEADRACE_TRY(in_tables(std::span<const Conversion>(conversions), [&](const auto& table) {
    return launch("launch of the cast kernel", stream, {blocks_for(table.tiles(), blocks)},
                  cast_kernel<std::decay_t<decltype(table)>>, table);
  }));
  return copy_blocks(stream, copies, blocks);
}

}  // namespace headrace
