#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace headrace::testing {

/// What GPUs were given by this process, as CUPTI recorded it.
struct GpuActivity {
  std::vector<std::string> kernels;  ///< names, one a launch
  int copies = 0;                    ///< each of a batch counts
  std::uint64_t copied_bytes = 0;
  int memsets = 0;
};

/// Runs `work`, waits for all of the current device's work, and returns what was recorded
/// meanwhile, by any thread. The error of `work`; or of CUPTI, also where the build found none. One
/// caller at a time; to be called in each process after its fork.
Result<GpuActivity> record_activity(const std::function<Status()>& work);

}  // namespace headrace::testing
