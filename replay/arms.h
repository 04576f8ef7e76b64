#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "balance/balance_plan.h"
#include "replay/ranks.h"
#include "replay/way.h"

namespace headrace::replay {

/// How an arm's minibatches are planned and run.
struct ArmChoice {
  Way way = Way::on_demand;
  Strategy strategy = Strategy::lb_mini;
};

/// "on-demand lb-mini".
std::string name_of(const ArmChoice& choice);

/// The arm, its compute being the plans' costs times `ns_a_cost`. Other than on demand, short ranks
/// are filled up with fillers.
Arm make_arm(const ArmChoice& choice, const std::vector<BalancePlan>& plans, double ns_a_cost);

/// Nanoseconds of each step by compute alone: on demand the costliest rank's, else the sum over
/// microbatches of the costliest rank's.
std::vector<double> ideal_ns(const Arm& arm);

}  // namespace headrace::replay
