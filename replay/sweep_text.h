#pragma once

#include <string>
#include <vector>

#include "replay/sweep.h"

namespace headrace::replay {

/// For people: a line a workload, then the scores. Ends with a new line.
std::string to_text(const std::vector<SweepCase>& cases, const SweepScore& score);

/// The same as one JSON object in one line.
std::string to_json(const std::vector<SweepCase>& cases, const SweepScore& score);

}  // namespace headrace::replay
