#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/arms.h"

namespace headrace::bench {

/// What one benchmark case came to: the first arm is ours, the others are its peers.
struct CaseResult {
  std::string bench;
  int ranks = 0;
  double mib = 0;
  std::size_t tensors = 0;
  std::string dtype;
  std::vector<Samples> arms;
  /// A rank's shared memory in `memory_unit`, by arm or by what takes it; may be empty.
  std::map<std::string, double> memory = {};
  std::string memory_unit = {};
};

/// One JSON object in one line: bench, case, ms, peers, ratios (a peer's ms over ours), spread
/// (quartiles of each arm over its median), memory where it is given, machine, versions.
std::string to_json(const CaseResult& result);
/// The same in one line for people.
std::string to_text(const CaseResult& result);

/// The value below which `fraction` of them lie, interpolated.
double quantile(std::vector<double> values, double fraction);
double median(std::vector<double> values);
/// The quartiles over the median.
std::pair<double, double> spread(const std::vector<double>& values);

}  // namespace headrace::bench
