#pragma once

#include <string>
#include <utility>
#include <vector>

#include "balance_plans.h"
#include "terminal.h"

namespace headrace::cli {

/// What plans come to, as a few lines. `model` is the cost model as the user named it.
std::string summary_text(const Totals& totals, const BalanceOptions& options,
                         const std::string& model);

/// A plan's ranks as bars over the time that it takes as mode="auto" runs it: a microbatch ends in
/// '|', waiting is dotted.
std::string bars_text(const BalancePlan& plan, const Terminal& terminal);

/// A line a strategy.
std::string comparison_text(const std::vector<std::pair<Strategy, Totals>>& strategies);

}  // namespace headrace::cli
