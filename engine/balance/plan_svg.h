#pragma once

#include <string>

#include "balance/balance_plan.h"

namespace headrace {

/// A picture of a plan as a complete SVG document: for lockstep and for on-demand, on one time
/// axis, a row a rank, microbatches as boxes (their samples and tokens as titles), waiting hatched.
std::string plan_svg(const BalancePlan& plan);

}  // namespace headrace
