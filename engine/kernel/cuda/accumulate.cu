#include <vector>

#include "kernel/cuda/accumulate.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/reduction.cuh"
#include "kernel/cuda/vector.cuh"
#include "kernel/cuda/warp_tiles.cuh"

namespace headrace {
namespace {

// Four elements: a warp's accesses to the accumulator, most of the bytes, are without gaps.
constexpr unsigned k_group = 4;
constexpr unsigned k_to_bytes = k_group * sizeof(float);

/// Groups of a lane in flight: as many as registers hold, where accumulators are loaded too.
template <Adders adders, DType dtype>
constexpr unsigned k_unroll = (adders == Adders::one ? 16 : 32) / item_size(dtype);

template <Adders adders>
struct Addition {
  Access to;
  Access from;
  GroupedRow row;
  DType dtype;

  std::size_t tiles() const {
    return dtype == DType::bfloat16 ? warp_tiles<k_group, k_unroll<adders, DType::bfloat16>>(row)
                                    : warp_tiles<k_group, k_unroll<adders, DType::float32>>(row);
  }
};

template <Adders adders>
Addition<adders> addition_of(const AccumulateJob& job) {
  const Operand operands[] = {{job.to, sizeof(float)}, {job.from, item_size(job.dtype)}};
  const std::size_t lead = best_lead(operands, k_group);
  return {access(operands[0], lead, k_group), access(operands[1], lead, k_group),
          GroupedRow{lead, lead + job.count}, job.dtype};
}

template <DType dtype>
struct BothSides {
  Packed<DType::float32, k_group> before;
  Packed<dtype, k_group> addend;
};

template <DType dtype>
__device__ void add_tile(const Addition<Adders::one>& job, std::size_t tile) {
  constexpr unsigned k_from_bytes = sizeof(Packed<dtype, k_group>);
  run_tile<k_group, k_unroll<Adders::one, dtype>>(
      job.row, tile, job.to.full && job.from.full,
      [&](std::size_t group) {
        return BothSides<dtype>{load_vector<k_to_bytes>(job.to.base + group * k_to_bytes),
                                load_vector<k_from_bytes>(job.from.base + group * k_from_bytes)};
      },
      [&](std::size_t group, const BothSides<dtype>& loaded) {
        const auto sum = plus(unpack<DType::float32, k_group>(loaded.before),
                              unpack<dtype, k_group>(loaded.addend));
        store_vector(job.to.base + group * k_to_bytes, pack<DType::float32>(sum));
      },
      [&](std::size_t group, Part part) {
        const std::uintptr_t to = job.to.base + group * k_to_bytes;
        const auto before = load_part<DType::float32, k_group>(to, job.to.width, part);
        const auto addend =
            load_part<dtype, k_group>(job.from.base + group * k_from_bytes, job.from.width, part);
        store_part<DType::float32>(to, job.to.width, part, plus(before, addend));
      });
}

template <DType dtype>
__device__ void reduce_tile(const Addition<Adders::many>& job, std::size_t tile) {
  constexpr unsigned k_from_bytes = sizeof(Packed<dtype, k_group>);
  run_tile<k_group, k_unroll<Adders::many, dtype>>(
      job.row, tile, job.to.full && job.from.full,
      [&](std::size_t group) {
        return load_vector<k_from_bytes>(job.from.base + group * k_from_bytes);
      },
      [&](std::size_t group, const Packed<dtype, k_group>& packed) {
        reduce_add(reinterpret_cast<float*>(job.to.base + group * k_to_bytes),
                   unpack<dtype, k_group>(packed));
      },
      [&](std::size_t group, Part part) {
        auto* to = reinterpret_cast<float*>(job.to.base + group * k_to_bytes);
        const auto values =
            load_part<dtype, k_group>(job.from.base + group * k_from_bytes, job.from.width, part);
#pragma unroll
        for (unsigned i = 0; i < k_group; ++i) {
          if (i >= part.begin && i < part.end) {
            reduce_add(to + i, values.values[i]);
          }
        }
      });
}

template <Adders adders, class Table>
__global__ void __launch_bounds__(k_block_threads, k_blocks_per_multiprocessor)
    accumulate_kernel(const __grid_constant__ Table table) {
  for_each_tile(table, [](const Addition<adders>& job, std::size_t tile) {
    if constexpr (adders == Adders::one) {
      job.dtype == DType::bfloat16 ? add_tile<DType::bfloat16>(job, tile)
                                   : add_tile<DType::float32>(job, tile);
    } else {
      job.dtype == DType::bfloat16 ? reduce_tile<DType::bfloat16>(job, tile)
                                   : reduce_tile<DType::float32>(job, tile);
    }
  });
}

template <Adders adders>
Status launch_additions(cudaStream_t stream, std::span<const AccumulateJob> jobs, int blocks) {
  std::vector<Addition<adders>> additions;
  for (const AccumulateJob& job : jobs) {
    if (job.count > 0) {
      additions.push_back(addition_of<adders>(job));
    }
  }
  return in_tables(std::span<const Addition<adders>>(additions), [&](const auto& table) {
    return launch("launch of the accumulate kernel", stream, {blocks_for(table.tiles(), blocks)},
                  accumulate_kernel<adders, std::decay_t<decltype(table)>>, table);
  });
}

}  // namespace

Status launch_accumulate(cudaStream_t stream, std::span<const AccumulateJob> jobs, Adders adders,
                         int blocks) {
  return adders == Adders::one ? launch_additions<Adders::one>(stream, jobs, blocks)
                               : launch_additions<Adders::many>(stream, jobs, blocks);
}

}  // namespace headrace
