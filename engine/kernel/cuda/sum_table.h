#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/result.h"
#include "kernel/cuda/sum.h"
#include "kernel/tiles.h"

namespace headrace {

/// Elements that a thread sums at a time: 16 bytes of bf16.
constexpr unsigned k_sum_group = 8;

/// Element e of row r's first group is at base + r * pitch + e * item.
struct SumSource {
  std::uintptr_t base = 0;
  std::size_t pitch = 0;
  unsigned offset = 0;  ///< of its tile in a stage of the bulk method, bytes
  std::uint8_t width = 0;
  DType dtype = DType::float32;
};

enum class SumKind : std::uint8_t { float32, bfloat16, mixed };

/// A SumJob as the kernels take it.
struct SumTable {
  SumSource sources[k_max_sum_sources];
  unsigned count = 0;
  SumKind kind = SumKind::mixed;
  bool add = false;
  bool full = false;  ///< every operand takes full vectors in every row
  Access to;
  std::size_t to_pitch = 0;
  GroupedRow row;
  unsigned rows = 0;
  unsigned tiles_per_row = 0;  ///< set by the method
  float scale = 1.0F;
};

Status launch_sum_plain(cudaStream_t stream, SumTable& table, int blocks);
/// Needs `table.full`.
Status launch_sum_bulk(cudaStream_t stream, SumTable& table, int blocks);
/// Whether the current device and the job's sources allow the bulk method.
Result<bool> bulk_sum_possible(const SumTable& table);

}  // namespace headrace
