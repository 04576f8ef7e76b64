#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "transport/transport.h"

namespace headrace {

/// Returns once every rank of the world has come to this `round`, for benchmarks, baselines and
/// tests: every rank signals every other and waits for all. `signals_offset` is where one signal a
/// rank lies in the memory of each; rounds count up from 1. `what` is what a wait names.
Status meet(Transport& transport, Stream& stream, int rank, int world_size,
            std::size_t signals_offset, std::uint64_t round, std::string_view what);

}  // namespace headrace
