#pragma once

#include "balance/balance_plan.h"

namespace headrace {

/// What communication adds to a step's compute, in the cost model's unit: what of it is not hidden.
/// All ranks at work at once, as `headrace replay` and `headrace bench` measure it. All zero:
/// compute alone decides.
struct CommunicationModel {
  double gather = 0.0;               ///< on demand: all gathers of a microbatch
  double push = 0.0;                 ///< all its pushes
  double on_demand_minibatch = 0.0;  ///< publish and settle
  double all_gather = 0.0;           ///< lockstep: all all-gathers of a microbatch
  double reduce_scatter = 0.0;       ///< all its reduce-scatters
  double lockstep_minibatch = 0.0;   ///< entering and leaving a bracket

  bool operator==(const CommunicationModel&) const = default;
};

/// How long a step of the plan is predicted to take in a mode. On demand: the rank with the most
/// compute and communication of its own microbatches, fillers left out. In lockstep: the costliest
/// rank of each step, and communication for every step, fillers included.
double step_time(const BalancePlan& plan, Mode mode, const CommunicationModel& communication);

/// On-demand where its step is predicted to take less than (1 - least_gain) of lockstep's.
Mode recommend(const BalancePlan& plan, const CommunicationModel& communication, double least_gain);

}  // namespace headrace
