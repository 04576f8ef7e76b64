#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collective/on_demand.h"

namespace headrace {

/// Adds each owner's rows of each gradient to that owner's fp32 accumulators, starting at this rank
/// and rotating, and then tells the owner. Gradients are sorted by parameter and free once
/// the stream has passed. `sent[owner]` counts this rank's pushes to the owner since the session
/// began; an owner counts a push as added only after it has been added.
Status scatter_accumulate(const OnDemand& on_demand, const BracketDigest& digest, std::size_t group,
                          std::span<const GradientSource> gradients,
                          std::vector<std::uint64_t>& sent);

}  // namespace headrace
