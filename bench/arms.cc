#include "bench/arms.h"

#include "base/clock.h"

namespace headrace::bench {

Result<std::vector<Samples>> run_rounds(const Rounds& rounds, const std::vector<Arm>& arms,
                                        const std::function<Status()>& meet) {
  std::vector<Samples> samples;
  for (const Arm& arm : arms) {
    samples.push_back({.name = arm.name, .ms = {}});
  }
  for (int round = 0; round < rounds.warm_up + rounds.timed; ++round) {
    for (std::size_t i = 0; i < arms.size(); ++i) {
      if (arms[i].prepare) {
        HEADRACE_TRY(arms[i].prepare());
      }
      HEADRACE_TRY(meet());
      const std::int64_t begin = now_ns();
      HEADRACE_TRY(arms[i].run());
      const double ms = static_cast<double>(now_ns() - begin) / 1e6;
      if (round >= rounds.warm_up) {
        samples[i].ms.push_back(ms);
      }
    }
  }
  HEADRACE_TRY(meet());
  return samples;
}

}  // namespace headrace::bench
