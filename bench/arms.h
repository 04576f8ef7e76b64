#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace headrace::bench {

/// One way of doing the same work. `prepare` runs before every timed run, outside the clock; may be
/// empty.
struct Arm {
  std::string name;
  std::function<Status()> run;
  std::function<Status()> prepare;
};

/// Milliseconds of one arm on this rank, a round each, warm-up left out.
struct Samples {
  std::string name;
  std::vector<double> ms;
};

struct Rounds {
  int warm_up = 3;
  int timed = 15;
};

/// Runs all arms in turn in every round, so that what disturbs the machine disturbs all alike;
/// `meet` lines the ranks up before each run.
Result<std::vector<Samples>> run_rounds(const Rounds& rounds, const std::vector<Arm>& arms,
                                        const std::function<Status()>& meet);

}  // namespace headrace::bench
