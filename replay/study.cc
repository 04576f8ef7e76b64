#include "replay/study.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "balance/strategies.h"

namespace headrace::replay {
namespace {

constexpr double k_mib = 1 << 20;
constexpr double k_gib = 1 << 30;
constexpr double k_ns_a_second = 1e9;

// Of all ranks and steps.
std::size_t samples(const StudyConfig& config) {
  return static_cast<std::size_t>(config.ranks) *
         static_cast<std::size_t>(config.samples_per_rank) * static_cast<std::size_t>(config.steps);
}

Status validate(const StudyConfig& config) {
  const std::size_t needed = samples(config);
  if (config.lengths.size() < needed) {
    return operation_error(fmt::format(
        "{} steps of {} samples on {} ranks need {} lengths, but there are {}", config.steps,
        config.samples_per_rank, config.ranks, needed, config.lengths.size()));
  }
  if (config.arms.empty()) {
    return operation_error("nothing to replay: no mode was given");
  }
  return {};
}

Status check_memory(const Run& run, std::size_t limit, double model_mib) {
  HEADRACE_TRY_ASSIGN(const std::size_t bytes, memory_bytes(run));
  if (bytes > limit) {
    return operation_error(fmt::format(
        "{} ranks with a model of {:.0f} MiB take {:.1f} GiB together, over the limit of {:.1f} "
        "GiB; replay a smaller one",
        run.ranks, model_mib, static_cast<double>(bytes) / k_gib,
        static_cast<double>(limit) / k_gib));
  }
  return {};
}

// Of the first arm: cost and microbatches, fillers included, of all ranks and steps.
struct Work {
  double cost = 0;
  double microbatches = 0;
};
Work work_of(const std::vector<BalancePlan>& plans, Way way) {
  Work work;
  for (const BalancePlan& given : plans) {
    const BalancePlan plan = way == Way::on_demand ? given : padded_for_lockstep(given);
    for (const auto& microbatches : plan.ranks) {
      work.microbatches += static_cast<double>(microbatches.size());
      for (const Microbatch& microbatch : microbatches) {
        work.cost += microbatch.cost;
      }
    }
  }
  return work;
}

std::vector<Way> calibrated_ways(const StudyConfig& config) {
  std::vector<Way> ways{Way::lockstep};  // the time scale is taken from it
  for (const ArmChoice& arm : config.arms) {
    if (std::ranges::find(ways, arm.way) == ways.end()) {
      ways.push_back(arm.way);
    }
  }
  return ways;
}

}  // namespace

Result<Study> run_study(const StudyConfig& config) {
  HEADRACE_TRY(validate(config));
  Study study;
  study.cap = config.cap > 0 ? config.cap : std::ranges::max(config.lengths);
  const auto& [shape, cost] = config.decoder;
  std::vector<std::vector<BalancePlan>> plans;
  for (const ArmChoice& arm : config.arms) {
    HEADRACE_TRY_ASSIGN(auto arm_plans, plan_batch(std::span(config.lengths).first(samples(config)),
                                                   static_cast<std::size_t>(config.steps),
                                                   {.world_size = config.ranks,
                                                    .cap = study.cap,
                                                    .strategy = arm.strategy,
                                                    .cost = cost}));
    plans.push_back(std::move(arm_plans));
  }

  const ModelSpec full = decoder_spec(shape, 1);
  const double full_mib = elements(full) * static_cast<double>(item_size(DType::bfloat16)) / k_mib;
  Run run{.ranks = config.ranks,
          .model = decoder_spec(shape, std::sqrt(std::max(1.0, full_mib / config.model_mib))),
          .arms = {},
          .warm_up = config.warm_up,
          .on_worker = config.on_worker,
          .placement = config.placement,
          .limits = config.limits};
  study.scales.bytes = elements(full) / elements(run.model);
  study.model_mib = full_mib / study.scales.bytes;
  const std::vector<Way> ways = calibrated_ways(config);
  for (const Way way : ways) {
    run.arms.push_back({.name = to_string(way), .way = way, .minibatches = {}});
  }
  HEADRACE_TRY(check_memory(run, config.memory_limit, study.model_mib));
  HEADRACE_TRY_ASSIGN(const std::size_t memory, memory_bytes(run));
  study.memory_mib = static_cast<double>(memory) / k_mib;

  HEADRACE_TRY_ASSIGN(study.calibration, calibrate(run, ways));
  const double lockstep_ns = study.calibration[Way::lockstep].microbatch_ns();
  const double machine_seconds = communication_seconds(config.machine, full, config.ranks);
  study.machine_microbatch_ms = machine_seconds * 1e3;
  HEADRACE_TRY_ASSIGN(const double cost_seconds, seconds_a_cost(config.machine, cost, shape));
  study.scales.time = lockstep_ns / k_ns_a_second / machine_seconds;
  if (config.communication) {
    const Work work = work_of(plans.front(), config.arms.front().way);
    const double ns_a_cost =
        lockstep_ns * work.microbatches / (work.cost * config.communication.value());
    study.scales.time = ns_a_cost / (cost_seconds * k_ns_a_second);
  }

  run.arms.clear();
  for (std::size_t arm = 0; arm < plans.size(); ++arm) {
    run.arms.push_back(
        make_arm(config.arms[arm], plans[arm], cost_seconds * study.scales.time * k_ns_a_second));
  }
  HEADRACE_TRY_ASSIGN(const std::vector<ArmTimes> times, run_ranks(run));
  for (std::size_t arm = 0; arm < times.size(); ++arm) {
    study.arms.push_back(report(run.arms[arm], times[arm]));
  }
  return study;
}

}  // namespace headrace::replay
