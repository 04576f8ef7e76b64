#pragma once

#include <nlohmann/json.hpp>

namespace headrace::bench {

/// The members `machine` and `versions` of a benchmark line.
nlohmann::ordered_json environment();

/// To three decimals, as benchmark lines have them.
double rounded(double value);

}  // namespace headrace::bench
