#pragma once

#include <cstddef>

#include "base/dtype.h"
#include "kernel/isa.h"

namespace headrace {

/// destination[i] = source[i]. bf16 to fp32 is exact; fp32 to bf16 rounds to nearest, ties to even,
/// denormals and infinities included, and a NaN stays a NaN; equal dtypes copy the bits. Both
/// ranges may start at any address and must not overlap.
void cast(void* destination, DType destination_dtype, const void* source, DType source_dtype,
          std::size_t count, Isa isa = best_isa());

}  // namespace headrace
