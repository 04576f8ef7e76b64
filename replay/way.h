#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace headrace::replay {

/// How a replayed model's parameters and gradients travel.
enum class Way : std::uint8_t {
  packed,     ///< as stock FSDP2 does it, on our transport: PackedBaseline
  lockstep,   ///< a session in lockstep
  on_demand,  ///< a session on demand
};

inline constexpr std::array k_ways{Way::packed, Way::lockstep, Way::on_demand};

/// "packed", "lockstep" or "on-demand".
const char* to_string(Way way);
Result<Way> parse_way(std::string_view name);

}  // namespace headrace::replay
