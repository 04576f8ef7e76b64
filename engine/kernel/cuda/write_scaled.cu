#include "kernel/cuda/launch.h"
#include "kernel/cuda/vector.cuh"
#include "kernel/cuda/warp_tiles.cuh"
#include "kernel/cuda/write_scaled.h"

namespace headrace {
namespace {

constexpr unsigned k_group = 4;
constexpr unsigned k_unroll = 4;
constexpr unsigned k_from_bytes = k_group * sizeof(float);

struct Scaling {
  Access to;
  Access from;
  GroupedRow row;
  float scale;
};

template <DType dtype>
struct BothSides {
  Packed<DType::float32, k_group> source;
  Packed<dtype, k_group> before;  ///< zeros where nothing is added to
};

template <bool add>
__device__ Floats<k_group> scaled(float scale, const Floats<k_group>& source,
                                  const Floats<k_group>& before) {
  return add ? times_plus(scale, source, before) : times(scale, source);
}

template <DType dtype, bool add>
__global__ void __launch_bounds__(k_block_threads, k_blocks_per_multiprocessor)
    write_scaled_kernel(const __grid_constant__ Scaling job) {
  constexpr unsigned k_to_bytes = sizeof(Packed<dtype, k_group>);
  const std::size_t tiles = warp_tiles<k_group, k_unroll>(job.row);
  for (std::size_t tile = warp_of_grid(); tile < tiles; tile += warps_of_grid()) {
    run_tile<k_group, k_unroll>(
        job.row, tile, job.to.full && job.from.full,
        [&](std::size_t group) {
          BothSides<dtype> loaded = {load_vector<k_from_bytes>(job.from.base +  //
                                                               group * k_from_bytes)};
          if constexpr (add) {
            loaded.before = load_vector<k_to_bytes>(job.to.base + group * k_to_bytes);
          }
          return loaded;
        },
        [&](std::size_t group, const BothSides<dtype>& loaded) {
          const auto values = scaled<add>(job.scale, unpack<DType::float32, k_group>(loaded.source),
                                          unpack<dtype, k_group>(loaded.before));
          store_vector(job.to.base + group * k_to_bytes, pack<dtype>(values));
        },
        [&](std::size_t group, Part part) {
          const std::uintptr_t to = job.to.base + group * k_to_bytes;
          const auto source = load_part<DType::float32, k_group>(
              job.from.base + group * k_from_bytes, job.from.width, part);
          Floats<k_group> before = {};
          if constexpr (add) {
            before = load_part<dtype, k_group>(to, job.to.width, part);
          }
          store_part<dtype>(to, job.to.width, part, scaled<add>(job.scale, source, before));
        });
  }
}

using Kernel = void (*)(Scaling);

Kernel kernel_of(DType dtype, bool add) {
  if (dtype == DType::float32) {
    return add ? write_scaled_kernel<DType::float32, true>
               : write_scaled_kernel<DType::float32, false>;
  }
  return add ? write_scaled_kernel<DType::bfloat16, true>
             : write_scaled_kernel<DType::bfloat16, false>;
}

}  // namespace

Status launch_write_scaled(cudaStream_t stream, void* destination, DType dtype, const float* source,
                           float scale, std::size_t count, bool add, int blocks) {
  if (count == 0) {
    return {};
  }
  const Operand operands[] = {{destination, item_size(dtype)}, {source, sizeof(float)}};
  const std::size_t lead = best_lead(operands, k_group);
  const Scaling job = {access(operands[0], lead, k_group), access(operands[1], lead, k_group),
                       GroupedRow{lead, lead + count}, scale};
  return launch("launch of the write_scaled kernel", stream,
                {blocks_for(warp_tiles<k_group, k_unroll>(job.row), blocks)}, kernel_of(dtype, add),
                job);
}

}  // namespace headrace
