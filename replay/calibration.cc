#include "replay/calibration.h"

#include <algorithm>

#include "bench/result.h"

namespace headrace::replay {
namespace {

Arm even_arm(Way way, int ranks, int microbatches, const CalibrationConfig& config) {
  const Minibatch minibatch(
      static_cast<std::size_t>(ranks),
      std::vector<std::int64_t>(static_cast<std::size_t>(microbatches), config.compute_ns));
  return {.name = to_string(way),
          .way = way,
          .minibatches = std::vector<Minibatch>(static_cast<std::size_t>(config.steps), minibatch)};
}

double median_step(const ArmTimes& times) {
  std::vector<double> steps;
  for (const auto& step : times) {
    steps.push_back(static_cast<double>(step_ns(step)));
  }
  return bench::median(steps);
}

// Of all ranks' time in gathers and reductions, waiting included.
double gather_share(const ArmTimes& times) {
  double gathers = 0;
  double reductions = 0;
  for (const auto& step : times) {
    for (const StepTimes& rank : step) {
      const auto total = [&](CallKind kind) {
        const CallTotal& call = rank.calls[static_cast<std::size_t>(kind)];
        return static_cast<double>(call.work_ns + call.waited_ns);
      };
      gathers += total(CallKind::gather);
      reductions += total(CallKind::reduce);
    }
  }
  return gathers / (gathers + reductions);
}

}  // namespace

Result<Calibration> calibrate(const Run& run, const std::vector<Way>& ways,
                              const CalibrationConfig& config) {
  Run probe = run;
  probe.on_worker = false;
  probe.arms.clear();
  for (const Way way : ways) {
    probe.arms.push_back(even_arm(way, run.ranks, config.few, config));
    probe.arms.push_back(even_arm(way, run.ranks, config.many, config));
  }
  HEADRACE_TRY_ASSIGN(const std::vector<ArmTimes> times, run_ranks(probe));
  Calibration calibration;
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const auto compute = static_cast<double>(config.compute_ns);
    const double few = median_step(times[2 * i]) - config.few * compute;
    const double many = median_step(times[2 * i + 1]) - config.many * compute;
    const double microbatch = std::max(0.0, many - few) / (config.many - config.few);
    const double share = gather_share(times[2 * i + 1]);
    calibration[ways[i]] = {.gather_ns = microbatch * share,
                            .reduce_ns = microbatch * (1 - share),
                            .minibatch_ns = std::max(0.0, few - config.few * microbatch)};
  }
  return calibration;
}

}  // namespace headrace::replay
