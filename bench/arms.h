#pragma once

#include <cstdint>
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

/// When one rank began and ended one run, on the clock that all processes of a host share.
struct Span {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

/// One arm on one rank, a span a round, warm-up left out.
struct Spans {
  std::string name;
  std::vector<Span> rounds;
};

/// Milliseconds of one arm a round: from the first rank's begin to the last rank's end, so that
/// ranks which share a core and run one after the other count for all of it.
struct Samples {
  std::string name;
  std::vector<double> ms;
};
std::vector<Samples> over_ranks(const std::vector<std::vector<Spans>>& by_rank);

struct Rounds {
  int warm_up = 3;
  int timed = 15;
};

/// Runs all arms in turn in every round, so that what disturbs the machine disturbs all alike;
/// `meet` lines the ranks up before each run.
Result<std::vector<Spans>> run_rounds(const Rounds& rounds, const std::vector<Arm>& arms,
                                      const std::function<Status()>& meet);

}  // namespace headrace::bench
