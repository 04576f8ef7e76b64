#pragma once

#include <span>

#include "collective/on_demand.h"

namespace headrace {

/// Reads every owner's published block of every parameter straight to its landing, starting at this
/// rank and rotating; waits only for each owner's epoch. `landings[p]` holds N * b_p bytes.
Status gather(const OnDemand& on_demand, const BracketDigest& digest, std::size_t group,
              std::span<void* const> landings);

}  // namespace headrace
