#pragma once

#include <nlohmann/json.hpp>

namespace headrace::bench {

/// As `environment`, and the current device, its driver and the CUDA runtime.
nlohmann::ordered_json gpu_environment();

}  // namespace headrace::bench
