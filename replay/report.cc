#include "replay/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench/result.h"
#include "replay/arms.h"

namespace headrace::replay {
namespace {

constexpr double k_ns_a_ms = 1e6;

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

}  // namespace

ArmReport report(const Arm& arm, const ArmTimes& times) {
  ArmReport report{.name = arm.name};
  std::vector<double> steps;
  double compute = 0;
  double work = 0;
  double exposed = 0;
  double waiting = 0;
  double bytes = 0;
  report.ranks.resize(times.front().size());
  for (const auto& step : times) {
    steps.push_back(static_cast<double>(step_ns(step)) / k_ns_a_ms);
    for (std::size_t rank = 0; rank < step.size(); ++rank) {
      const StepTimes& t = step[rank];
      const auto all = static_cast<double>(t.step_ns()) * static_cast<double>(times.size());
      report.ranks[rank].compute += static_cast<double>(t.compute_ns) / all;
      report.ranks[rank].communication += static_cast<double>(t.exposed_ns()) / all;
      report.ranks[rank].waiting += static_cast<double>(t.waiting_ns) / all;
      compute += static_cast<double>(t.compute_ns);
      work += static_cast<double>(t.work_ns());
      exposed += static_cast<double>(t.exposed_ns());
      waiting += static_cast<double>(t.waiting_ns);
      bytes += static_cast<double>(t.bytes);
    }
  }
  std::vector<double> ideals = ideal_ns(arm);
  for (double& ideal : ideals) {
    ideal /= k_ns_a_ms;
  }
  const auto rank_steps = static_cast<double>(times.size() * report.ranks.size());
  report.step_ms = bench::median(steps);
  const auto [lower, upper] = bench::spread(steps);
  report.lower_ms = lower * report.step_ms;
  report.upper_ms = upper * report.step_ms;
  report.ideal_ms = bench::median(ideals);
  report.total_ms = sum(steps);
  report.ideal_total_ms = sum(ideals);
  report.over_ideal = report.total_ms / report.ideal_total_ms;
  report.waiting_ms = waiting / rank_steps / k_ns_a_ms;
  report.communication = work / compute;
  report.overlap = std::clamp(1.0 - exposed / work, 0.0, 1.0);
  report.mib = bytes / rank_steps / (1 << 20);
  return report;
}

Gain gain(const ArmReport& slow, const ArmReport& fast) {
  return {.measured = slow.total_ms / fast.total_ms,
          .ideal = slow.ideal_total_ms / fast.ideal_total_ms};
}

std::string bars(const ArmReport& report, int width) {
  std::string text;
  for (std::size_t rank = 0; rank < report.ranks.size(); ++rank) {
    const RankShares& shares = report.ranks[rank];
    const auto cells = [&](double share) {
      return std::clamp(static_cast<int>(std::lround(share * width)), 0, width);
    };
    const int compute = cells(shares.compute);
    const int communication = std::min(cells(shares.communication), width - compute);
    const int waiting = std::min(cells(shares.waiting), width - compute - communication);
    text += fmt::format(
        "  rank {} {:#>{}}{:+>{}}{:.>{}} compute {:.1f} %, communication {:.1f} %, "
        "waiting {:.1f} %\n",
        rank, "", compute, "", communication, "", waiting, 100 * shares.compute,
        100 * shares.communication, 100 * shares.waiting);
  }
  return text;
}

}  // namespace headrace::replay
