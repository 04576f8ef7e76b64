#pragma once

#include <string>

#include "replay/study.h"

namespace headrace::replay {

/// For people: the scales, a table with a line an arm, and a bar a rank for each arm. Ends with a
/// new line.
std::string to_text(const StudyConfig& config, const Study& study);

/// The same as one JSON object in one line.
std::string to_json(const StudyConfig& config, const Study& study);

}  // namespace headrace::replay
