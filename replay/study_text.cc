#include "replay/study_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace headrace::replay {
namespace {

constexpr int k_bar_width = 60;
constexpr double k_ns_a_ms = 1e6;

const char* threads(const StudyConfig& config) { return config.on_worker ? "worker" : "inline"; }

nlohmann::ordered_json to_json(const ArmReport& arm) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const RankShares& rank : arm.ranks) {
    ranks.push_back({{"compute", rank.compute},
                     {"communication", rank.communication},
                     {"waiting", rank.waiting}});
  }
  return {{"name", arm.name},
          {"step_ms", arm.step_ms},
          {"quartiles_ms", {arm.lower_ms, arm.upper_ms}},
          {"ideal_ms", arm.ideal_ms},
          {"over_ideal", arm.over_ideal},
          {"waiting_ms", arm.waiting_ms},
          {"communication_over_compute", arm.communication},
          {"overlap", arm.overlap},
          {"mib", arm.mib},
          {"total_ms", arm.total_ms},
          {"ideal_total_ms", arm.ideal_total_ms},
          {"ranks", std::move(ranks)}};
}

}  // namespace

std::string to_text(const StudyConfig& config, const Study& study) {
  std::string text = fmt::format(
      "{} ranks, {} samples a rank, {} steps, microbatches of at most {} tokens, communication {}\n"
      "machine {}: {:.0f} TFLOP/s, {:.1f} GB/s a rank ({}); {:.1f} ms of communication a "
      "microbatch\n"
      "scaled: bytes 1/{:.4g} (model of {:.1f} MiB, {:.0f} MiB of memory in all), time x{:.4g}\n",
      config.ranks, config.samples_per_rank, config.steps, study.cap,
      config.on_worker ? "beside compute" : "inline", config.machine.name,
      config.machine.flops / 1e12, config.machine.bytes_per_second / 1e9, config.machine.source,
      study.machine_microbatch_ms, study.scales.bytes, study.model_mib, study.memory_mib,
      study.scales.time);
  for (const auto& [way, cost] : study.calibration) {
    text += fmt::format(
        "calibrated {}: a microbatch gathers for {:.2f} ms and reduces for {:.2f} ms, all ranks at "
        "once; {:.2f} ms a minibatch\n",
        to_string(way), cost.gather_ns / k_ns_a_ms, cost.reduce_ns / k_ns_a_ms,
        cost.minibatch_ns / k_ns_a_ms);
  }
  text += fmt::format("\n{:<24}{:>9}{:>17}{:>10}{:>8}{:>11}{:>9}{:>9}{:>10}\n", "", "step ms",
                      "quartiles", "ideal ms", "ratio", "waiting ms", "comm/c", "overlap", "MiB");
  for (const ArmReport& arm : study.arms) {
    text += fmt::format(
        "{:<24}{:>9.1f}{:>17}{:>10.1f}{:>8.3f}{:>11.1f}{:>8.1f}%{:>8.0f}%{:>10.1f}\n", arm.name,
        arm.step_ms, fmt::format("{:.1f}-{:.1f}", arm.lower_ms, arm.upper_ms), arm.ideal_ms,
        arm.over_ideal, arm.waiting_ms, 100 * arm.communication, 100 * arm.overlap, arm.mib);
  }
  for (const ArmReport& arm : study.arms) {
    text += fmt::format("\n{}: # compute, + communication, . waiting\n{}", arm.name,
                        bars(arm, k_bar_width));
  }
  return text;
}

std::string to_json(const StudyConfig& config, const Study& study) {
  nlohmann::ordered_json json;
  json["ranks"] = config.ranks;
  json["samples_per_rank"] = config.samples_per_rank;
  json["steps"] = config.steps;
  json["cap"] = study.cap;
  json["threads"] = threads(config);
  json["machine"] = {{"name", config.machine.name},
                     {"flops", config.machine.flops},
                     {"bytes_per_second", config.machine.bytes_per_second},
                     {"source", config.machine.source},
                     {"microbatch_ms", study.machine_microbatch_ms}};
  json["scales"] = {{"bytes", study.scales.bytes}, {"time", study.scales.time}};
  json["model_mib"] = study.model_mib;
  json["memory_mib"] = study.memory_mib;
  for (const auto& [way, cost] : study.calibration) {
    json["calibration"][to_string(way)] = {{"gather_ms", cost.gather_ns / k_ns_a_ms},
                                           {"reduce_ms", cost.reduce_ns / k_ns_a_ms},
                                           {"minibatch_ms", cost.minibatch_ns / k_ns_a_ms}};
  }
  json["arms"] = nlohmann::ordered_json::array();
  for (const ArmReport& arm : study.arms) {
    json["arms"].push_back(to_json(arm));
  }
  return json.dump() + "\n";
}

}  // namespace headrace::replay
