#pragma once

#include <string>

#include "balance/cost_model.h"
#include "base/result.h"

namespace headrace {

/// A cost model as users name it:
/// - a preset, "1.5B" or "7B";
/// - coefficients, "quadratic,linear" or "quadratic,linear,per_microbatch";
/// - a Hugging Face config.json, any other file whose name ends in .json, or a folder with a
///   config.json: floating-point operations (model_config.h);
/// - any other file: measured points (cost_points.h).
/// The error for anything else lists these.
Result<CostModel> parse_cost_model(const std::string& text);

}  // namespace headrace
