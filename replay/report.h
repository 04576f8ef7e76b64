#pragma once

#include <string>
#include <vector>

#include "replay/ranks.h"

namespace headrace::replay {

/// Where one rank's time of a step went, on average over the steps: parts of the step.
struct RankShares {
  double compute = 0;
  double communication = 0;  ///< while compute stood still
  double waiting = 0;        ///< for peers
};

/// What one arm came to. Milliseconds.
struct ArmReport {
  std::string name;
  double step_ms = 0;   ///< median
  double lower_ms = 0;  ///< quartiles
  double upper_ms = 0;
  double ideal_ms = 0;    ///< median step by compute alone
  double over_ideal = 0;  ///< all steps together: measured over compute alone
  double waiting_ms = 0;  ///< of a rank in a step, mean
  /// Communication without waiting, hidden or not, over compute.
  double communication = 0;
  double overlap = 0;   ///< share of communication hidden under compute
  double mib = 0;       ///< unsharded groups gathered and reduced by a rank in a step, mean
  double total_ms = 0;  ///< all steps
  double ideal_total_ms = 0;
  std::vector<RankShares> ranks;
};

ArmReport report(const Arm& arm, const ArmTimes& times);

/// How much longer `slow` takes than `fast`, measured and by compute alone, all steps together.
struct Gain {
  double measured = 0;
  double ideal = 0;
};
Gain gain(const ArmReport& slow, const ArmReport& fast);

/// A bar a rank, `width` characters for the whole step: compute, communication, waiting.
std::string bars(const ArmReport& report, int width);

}  // namespace headrace::replay
