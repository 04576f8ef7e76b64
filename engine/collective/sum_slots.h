#pragma once

#include <cstdint>
#include <vector>

#include "collective/on_demand.h"

namespace headrace {

/// Adds the other slots of this rank's accumulators to slot 0, in rank order whatever the order of
/// arrival; nothing where sources share a slot. `touched_by[source]` is the mask of the parameters
/// that the source pushed: a slot is left out where it is zero still, which changes no bit. It must
/// stay until the stream has passed.
Status sum_slots(const OnDemand& on_demand,
                 const std::vector<std::vector<std::uint64_t>>& touched_by);

}  // namespace headrace
