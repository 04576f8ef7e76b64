#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/result.h"
#include "replay/ranks.h"
#include "replay/way.h"

namespace headrace::replay {

/// What one way of communicating costs where nothing is hidden. Nanoseconds from the first rank's
/// begin to the last one's end, so that ranks which share a core count for all of it.
struct WayCost {
  double gather_ns = 0;     ///< all gathers of a microbatch
  double reduce_ns = 0;     ///< all its reductions
  double minibatch_ns = 0;  ///< what a minibatch costs beside its microbatches

  double microbatch_ns() const { return gather_ns + reduce_ns; }
};
using Calibration = std::map<Way, WayCost>;

struct CalibrationConfig {
  int few = 1;    ///< microbatches of the shorter step
  int many = 5;   ///< of the longer one
  int steps = 7;  ///< of each; medians count
  /// Of every microbatch on every rank. None: all ranks communicate at once all the time. With
  /// compute, ranks on demand spread out as they do in training.
  std::int64_t compute_ns = 0;
};

/// Measures the ways on the run's ranks and model; compute is left out of the costs. The run's arms
/// are not looked at.
Result<Calibration> calibrate(const Run& run, const std::vector<Way>& ways,
                              const CalibrationConfig& config = {});

}  // namespace headrace::replay
