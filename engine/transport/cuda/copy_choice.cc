#include "transport/cuda/copy_choice.h"

#include <algorithm>

namespace headrace {

bool CopyChoice::by_kernel(const std::vector<CopySegment>& jobs) const {
  if (way != CopyWay::automatic) {
    return way == CopyWay::kernel;
  }
  double bytes = 0;
  for (const CopySegment& job : jobs) {
    bytes += static_cast<double>(job.bytes);
  }
  // A copy engine works on one copy while the next is set up.
  const double engine =
      std::max(descriptor_us * static_cast<double>(jobs.size()), bytes / engine_bytes_per_us);
  return kernel_us + bytes / kernel_bytes_per_us < engine;
}

std::vector<CopySegment> merged(std::vector<CopySegment> jobs) {
  std::vector<CopySegment> result;
  for (const CopySegment& job : jobs) {
    if (job.bytes == 0) {
      continue;
    }
    if (!result.empty()) {
      CopySegment& last = result.back();
      const auto* after_source = static_cast<const std::byte*>(last.from) + last.bytes;
      const auto* after_target = static_cast<std::byte*>(last.to) + last.bytes;
      if (after_source == job.from && after_target == job.to) {
        last.bytes += job.bytes;
        continue;
      }
    }
    result.push_back(job);
  }
  return result;
}

}  // namespace headrace
