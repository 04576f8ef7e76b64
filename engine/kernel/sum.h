#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.h"
#include "kernel/isa.h"

namespace headrace {

struct Summand {
  const void* values = nullptr;  ///< at any address
  DType dtype = DType::float32;
};

/// destination[i] = scale * (s0[i] + s1[i] + ...), the sum in fp32 in the order of `sources`, each
/// addition rounded once; with `add`, destination[i] is added to that by a fused multiply-add.
/// Every set and every way to cut a range into calls gives the same bits, except for the payload of
/// a NaN. Without `add`, stores from k_streaming_threshold bytes on go past the caches.
///
/// The destination is aligned to its elements. It overlaps no source; no source: zeros.
void sum(float* destination, std::span<const Summand> sources, std::size_t count, float scale,
         bool add, Isa isa = best_isa());

}  // namespace headrace
