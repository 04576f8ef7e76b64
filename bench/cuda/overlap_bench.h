#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bench/cuda/paced_load.h"
#include "bench/cuda/work.h"

namespace headrace::bench {

struct OverlapOptions {
  int rounds = 15;    ///< loaded, between two times alone: what drifts is left out
  int batches = 60;   ///< timed a round, each between two events
  int launches = 10;  ///< a batch
  Pace pace;
  Milliseconds limit{60'000};  ///< longest wait for the batches of a round
};

/// One work beside one load.
struct OverlapCase {
  std::string work;
  std::string load;
  double pace = 0;             ///< bytes a second that were asked for
  double achieved = 0;         ///< bytes a second, median over rounds
  double traffic = 0;          ///< of them on the device's memory, bytes a second
  std::vector<double> alone;   ///< ms a launch, the median over batches; one more than rounds
  std::vector<double> loaded;  ///< the same beside the load, a round
  std::vector<double>
      slowdown;  ///< loaded over the mean of alone before and after, less 1, a round
};

/// Milliseconds a launch, the median over batches, without any load.
Result<double> time_alone(const OverlapOptions& options, const Work& work);

/// Every work beside every load.
Result<std::vector<OverlapCase>> overlap_bench(const OverlapOptions& options,
                                               std::span<const Work> works,
                                               std::span<const Load> loads);

/// `memory_rate`, bytes a second: what the load's traffic is a share of.
std::string to_text(const OverlapCase& one, double memory_rate);
/// One JSON object in one line.
std::string to_json(const OverlapCase& one, double memory_rate);

}  // namespace headrace::bench
