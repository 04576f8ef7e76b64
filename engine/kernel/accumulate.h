#pragma once

#include <cstddef>

#include "base/dtype.h"
#include "kernel/isa.h"

namespace headrace {

/// destination[i] += source[i] in fp32, each sum rounded once. The source may start at any address;
/// the two ranges must not overlap. Thread: any, as long as nobody else touches the destination.
void accumulate(float* destination, const void* source, DType source_dtype, std::size_t count,
                Isa isa = best_isa());

/// destination[i] = scale * source[i], or += with `add`: one fused multiply-add in fp32, then one
/// rounding to `dtype` (nearest, ties to even; a NaN stays a NaN). The destination may start at any
/// address; the two ranges must not overlap.
void write_scaled(void* destination, DType dtype, const float* source, float scale,
                  std::size_t count, bool add, Isa isa = best_isa());

}  // namespace headrace
