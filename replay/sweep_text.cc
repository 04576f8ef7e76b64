#include "replay/sweep_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace headrace::replay {
namespace {

std::string line(const char* policy, const PolicyScore& score, int cases) {
  return fmt::format("{:<18} right {} of {}, {:.2f} % longer than the faster modes\n", policy,
                     score.right, cases, 100 * score.regret);
}

nlohmann::ordered_json json_of(const PolicyScore& score) {
  return {{"right", score.right}, {"regret", score.regret}};
}

}  // namespace

std::string to_text(const std::vector<SweepCase>& cases, const SweepScore& score) {
  std::string text =
      fmt::format("{:<18}{:>6}{:>9}{:>8}{:>8}{:>21}{:>21}  auto\n", "", "ranks", "samples",
                  "microb.", "comm/c", "lockstep ms (pred.)", "on-demand ms (pred.)");
  for (const SweepCase& one : cases) {
    text += fmt::format(
        "{:<18}{:>6}{:>9}{:>8}{:>7.0f}%{:>12.1f} ({:>6.1f}){:>12.1f} ({:>6.1f})  {}{}\n",
        one.workload, one.ranks, one.samples_per_rank, one.microbatches, 100 * one.communication,
        one.lockstep_ms, one.predicted_lockstep_ms, one.on_demand_ms, one.predicted_on_demand_ms,
        one.chose_on_demand ? "on-demand" : "lockstep",
        one.chosen_ms() > one.best_ms()
            ? fmt::format(" ({:.1f} % longer)", 100 * (one.chosen_ms() / one.best_ms() - 1))
            : "");
  }
  text += fmt::format("\nof {}: lockstep faster {}, on-demand faster {}, the others a tie\n",
                      score.cases, score.lockstep_faster, score.on_demand_faster);
  text += line("auto", score.automatic, score.cases);
  text += line("always lockstep", score.always_lockstep, score.cases);
  return text + line("always on-demand", score.always_on_demand, score.cases);
}

std::string to_json(const std::vector<SweepCase>& cases, const SweepScore& score) {
  nlohmann::ordered_json json{{"cases", score.cases},
                              {"lockstep_faster", score.lockstep_faster},
                              {"on_demand_faster", score.on_demand_faster},
                              {"auto", json_of(score.automatic)},
                              {"always_lockstep", json_of(score.always_lockstep)},
                              {"always_on_demand", json_of(score.always_on_demand)}};
  json["workloads"] = nlohmann::ordered_json::array();
  for (const SweepCase& one : cases) {
    json["workloads"].push_back({{"workload", one.workload},
                                 {"ranks", one.ranks},
                                 {"samples_per_rank", one.samples_per_rank},
                                 {"microbatches", one.microbatches},
                                 {"communication", one.communication},
                                 {"lockstep_ms", one.lockstep_ms},
                                 {"on_demand_ms", one.on_demand_ms},
                                 {"predicted_lockstep_ms", one.predicted_lockstep_ms},
                                 {"predicted_on_demand_ms", one.predicted_on_demand_ms},
                                 {"auto", one.chose_on_demand ? "on-demand" : "lockstep"}});
  }
  return json.dump() + "\n";
}

}  // namespace headrace::replay
