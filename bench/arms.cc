#include "bench/arms.h"

#include <algorithm>

#include "base/clock.h"

namespace headrace::bench {

std::vector<Samples> over_ranks(const std::vector<std::vector<Spans>>& by_rank) {
  std::vector<Samples> samples;
  for (std::size_t arm = 0; arm < by_rank.front().size(); ++arm) {
    Samples& all = samples.emplace_back();
    all.name = by_rank.front()[arm].name;
    for (std::size_t round = 0; round < by_rank.front()[arm].rounds.size(); ++round) {
      Span whole = by_rank.front()[arm].rounds[round];
      for (const auto& rank : by_rank) {
        whole.begin_ns = std::min(whole.begin_ns, rank[arm].rounds[round].begin_ns);
        whole.end_ns = std::max(whole.end_ns, rank[arm].rounds[round].end_ns);
      }
      all.ms.push_back(static_cast<double>(whole.end_ns - whole.begin_ns) / 1e6);
    }
  }
  return samples;
}

Result<std::vector<Spans>> run_rounds(const Rounds& rounds, const std::vector<Arm>& arms,
                                      const std::function<Status()>& meet) {
  std::vector<Spans> spans;
  for (const Arm& arm : arms) {
    spans.push_back({.name = arm.name, .rounds = {}});
  }
  for (int round = 0; round < rounds.warm_up + rounds.timed; ++round) {
    for (std::size_t i = 0; i < arms.size(); ++i) {
      if (arms[i].prepare) {
        HEADRACE_TRY(arms[i].prepare());
      }
      HEADRACE_TRY(meet());
      Span span{.begin_ns = now_ns(), .end_ns = 0};
      HEADRACE_TRY(arms[i].run());
      span.end_ns = now_ns();
      if (round >= rounds.warm_up) {
        spans[i].rounds.push_back(span);
      }
    }
  }
  HEADRACE_TRY(meet());
  return spans;
}

}  // namespace headrace::bench
