#include "replay/times.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace headrace::replay {

std::int64_t StepTimes::work_ns() const {
  std::int64_t sum = 0;
  for (const CallTotal& total : calls) {
    sum += total.work_ns;
  }
  return sum;
}

std::int64_t step_ns(const std::vector<StepTimes>& ranks) {
  const auto begin = std::ranges::min(ranks, {}, &StepTimes::begin_ns).begin_ns;
  return std::ranges::max(ranks, {}, &StepTimes::end_ns).end_ns - begin;
}

// A line a step: its numbers in the order of the struct.
std::string to_text(const std::vector<ArmTimes>& times) {
  std::string text;
  for (const ArmTimes& arm : times) {
    for (const auto& step : arm) {
      const StepTimes& t = step.front();
      text +=
          fmt::format("{} {} {} {} {}", t.begin_ns, t.end_ns, t.compute_ns, t.waiting_ns, t.bytes);
      for (const CallTotal& call : t.calls) {
        text += fmt::format(" {} {} {}", call.calls, call.work_ns, call.waited_ns);
      }
      text += '\n';
    }
  }
  return text;
}

void add_text(std::vector<ArmTimes>& times, const std::string& text) {
  std::istringstream words(text);
  for (ArmTimes& arm : times) {
    for (auto& step : arm) {
      StepTimes& t = step.emplace_back();
      words >> t.begin_ns >> t.end_ns >> t.compute_ns >> t.waiting_ns >> t.bytes;
      for (CallTotal& call : t.calls) {
        words >> call.calls >> call.work_ns >> call.waited_ns;
      }
    }
  }
}

}  // namespace headrace::replay
