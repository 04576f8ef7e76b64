#pragma once

#include <cstddef>

#include "kernel/isa.h"

namespace headrace {

/// From this size on copy_streaming writes past the caches. Below it a plain copy is faster, and
/// the reader probably finds the bytes in a cache.
constexpr std::size_t k_streaming_threshold = 128 * 1024;

/// Copies `bytes` bytes; both ranges may start at any address and must not overlap. From
/// k_streaming_threshold on the stores are non-temporal: they need not read the destination first,
/// which saves a third of the memory traffic. They are complete on return as far as ordering goes:
/// a release store after this call publishes the bytes.
void copy_streaming(void* destination, const void* source, std::size_t bytes, Isa isa = best_isa());

}  // namespace headrace
