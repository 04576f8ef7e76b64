#pragma once

#include <vector>

#include "balance/cost_model.h"
#include "balance/text_input.h"
#include "base/result.h"

namespace headrace {

/// Measured points from comma-separated values `tokens,cost` (with a first line that names the
/// columns, or without) or from JSON lines of objects with these two fields. Errors name input,
/// line and what was found.
Result<std::vector<CostPoint>> parse_cost_points(const TextInput& input);

/// The fit through such points, with a cost a microbatch where they have three lengths or more.
Result<CostModel> fit_cost_points(const TextInput& input);

}  // namespace headrace
