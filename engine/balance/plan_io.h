#pragma once

#include <string>
#include <string_view>

#include "balance/balance_plan.h"
#include "base/result.h"

namespace headrace {

/// A plan as one JSON object, for tools: strategy, cap, tokens, tokens_lost, oversize, digest (16
/// hex digits), recommendation, lockstep and on_demand (makespan, bubble and lower_bound each), and
/// ranks: for each rank its cost and its microbatches with tokens, cost and pieces, a piece as
/// [sample, begin, tokens].
std::string to_json(const BalancePlan& plan);

/// The plan that to_json wrote, equal to it in every field. Error where the text is not such an
/// object or the digest does not match, naming what is wrong.
Result<BalancePlan> plan_from_json(std::string_view text);

}  // namespace headrace
