#pragma once

#include "kernel/cuda/sum_table.h"
#include "kernel/cuda/vector.cuh"
#include "kernel/cuda/warp_tiles.cuh"

// What both methods of the sum share: a thread's arithmetic and its access to global memory.

namespace headrace {

using SumFloats = Floats<k_sum_group>;
constexpr unsigned k_sum_to_bytes = k_sum_group * sizeof(float);

/// The sum of nothing: added to any number it leaves its bits, the sign of a zero included.
__device__ __forceinline__ SumFloats no_sum() {
  SumFloats floats;
#pragma unroll
  for (float& value : floats.values) {
    value = -0.0F;
  }
  return floats;
}

__device__ __forceinline__ std::uintptr_t group_address(const SumSource& source, unsigned row,
                                                        std::size_t group) {
  const unsigned item = source.dtype == DType::float32 ? 4 : 2;
  return source.base + row * source.pitch + group * (k_sum_group * item);
}

__device__ __forceinline__ std::uintptr_t to_address(const SumTable& table, unsigned row,
                                                     std::size_t group) {
  return table.to.base + row * table.to_pitch + group * k_sum_to_bytes;
}

template <bool add>
__device__ __forceinline__ SumFloats scaled_sum(float scale, const SumFloats& total,
                                                const SumFloats& before) {
  return add ? times_plus(scale, total, before) : times(scale, total);
}

/// A group of which only `part` is in the row, or whose operands do not take full vectors.
template <bool add>
__device__ __noinline__ void sum_part(const SumTable& table, unsigned row, std::size_t group,
                                      Part part) {
  SumFloats total = no_sum();
  for (unsigned s = 0; s < table.count; ++s) {
    const SumSource& source = table.sources[s];
    const std::uintptr_t from = group_address(source, row, group);
    total = plus(total, source.dtype == DType::float32
                            ? load_part<DType::float32, k_sum_group>(from, source.width, part)
                            : load_part<DType::bfloat16, k_sum_group>(from, source.width, part));
  }
  const std::uintptr_t to = to_address(table, row, group);
  SumFloats before = {};
  if constexpr (add) {
    before = load_part<DType::float32, k_sum_group>(to, table.to.width, part);
  }
  store_part<DType::float32>(to, table.to.width, part, scaled_sum<add>(table.scale, total, before));
}

}  // namespace headrace
