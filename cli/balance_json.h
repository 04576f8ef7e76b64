#pragma once

#include <string>
#include <utility>
#include <vector>

#include "balance_plans.h"

namespace headrace::cli {

/// One JSON object: what was asked, the totals, and every minibatch with the positions of its
/// samples and its plan (plan_io.h).
std::string balance_json(const std::vector<PlannedMinibatch>& plans, const Totals& totals,
                         const BalanceOptions& options);

/// One JSON object with the totals of each strategy.
std::string comparison_json(const std::vector<std::pair<Strategy, Totals>>& strategies,
                            const BalanceOptions& options);

}  // namespace headrace::cli
