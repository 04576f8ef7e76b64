#include "transport/cuda/device_copies.h"

#include "runtime/cuda/cuda_error.h"

namespace headrace {
namespace {

Status by_copy_engine(cudaStream_t stream, std::span<const CopySegment> copies) {
  if (copies.size() == 1) {
    return cuda_status(
        ::cudaMemcpyAsync(copies[0].to, copies[0].from, copies[0].bytes, cudaMemcpyDefault, stream),
        "cannot copy between device memories");
  }
#if CUDART_VERSION >= 13000
  std::vector<void*> targets;
  std::vector<const void*> sources;
  std::vector<std::size_t> sizes;
  for (const CopySegment& copy : copies) {
    targets.push_back(copy.to);
    sources.push_back(copy.from);
    sizes.push_back(copy.bytes);
  }
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  std::size_t first = 0;
  return cuda_status(::cudaMemcpyBatchAsync(targets.data(), sources.data(), sizes.data(),
                                            copies.size(), &attributes, &first, 1, stream),
                     "cannot copy between device memories");
#else
  for (const CopySegment& copy : copies) {
    HEADRACE_TRY(
        cuda_status(::cudaMemcpyAsync(copy.to, copy.from, copy.bytes, cudaMemcpyDefault, stream),
                    "cannot copy between device memories"));
  }
  return {};
#endif
}

}  // namespace

bool CopyChoice::by_kernel(std::span<const CopySegment> copies) const {
  if (way != CopyWay::automatic) {
    return way == CopyWay::kernel;
  }
  double bytes = 0;
  for (const CopySegment& copy : copies) {
    bytes += static_cast<double>(copy.bytes);
  }
  const double engine =
      descriptor_us * static_cast<double>(copies.size()) + bytes / engine_bytes_per_us;
  return kernel_us + bytes / kernel_bytes_per_us < engine;
}

std::vector<CopySegment> merged(std::span<const CopySegment> copies) {
  std::vector<CopySegment> result;
  for (const CopySegment& copy : copies) {
    if (copy.bytes == 0) {
      continue;
    }
    if (!result.empty()) {
      CopySegment& last = result.back();
      const auto* after_source = static_cast<const std::byte*>(last.from) + last.bytes;
      const auto* after_target = static_cast<std::byte*>(last.to) + last.bytes;
      if (after_source == copy.from && after_target == copy.to) {
        last.bytes += copy.bytes;
        continue;
      }
    }
    result.push_back(copy);
  }
  return result;
}

Status enqueue_copies(cudaStream_t stream, std::span<const CopySegment> copies,
                      const CopyChoice& choice) {
  if (copies.empty()) {
    return {};
  }
  return choice.by_kernel(copies) ? copy_blocks(stream, copies, choice.kernel_blocks)
                                  : by_copy_engine(stream, copies);
}

}  // namespace headrace
