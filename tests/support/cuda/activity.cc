#include "support/cuda/activity.h"

#if HEADRACE_CUPTI

#include <cuda_runtime_api.h>
#include <cupti.h>
#include <fmt/format.h>

#include <cstdlib>
#include <mutex>
#include <utility>

namespace headrace::testing {
namespace {

constexpr std::size_t k_buffer_bytes = std::size_t{1} << 20;
constexpr std::size_t k_buffer_alignment = 8;
constexpr CUpti_ActivityKind k_kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                          CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY2,
                                          CUPTI_ACTIVITY_KIND_MEMSET};

// CUPTI's callbacks carry no user data, so that what they write to cannot be passed.
struct Recorded {
  std::mutex mutex;
  GpuActivity activity;
};
Recorded& recorded() {
  static Recorded all;
  return all;
}

Status ok(CUptiResult result, const char* call) {
  if (result == CUPTI_SUCCESS) {
    return {};
  }
  const char* text = "unknown";
  cuptiGetResultString(result, &text);
  Error error = operation_error(fmt::format("{}: {}", call, text));
  error.native_code = static_cast<int>(result);
  return error;
}

void add(GpuActivity& activity, const CUpti_Activity* record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      activity.kernels.emplace_back(reinterpret_cast<const CUpti_ActivityKernel10*>(record)->name);
      break;
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto* copy = reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
      activity.copies += static_cast<int>(copy->copyCount);
      activity.copied_bytes += copy->bytes;
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      activity.copies += 1;
      activity.copied_bytes += reinterpret_cast<const CUpti_ActivityMemcpyPtoP4*>(record)->bytes;
      break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
      activity.memsets += 1;
      break;
    default:
      break;
  }
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(k_buffer_alignment, k_buffer_bytes));
  *bytes = *buffer == nullptr ? 0 : k_buffer_bytes;
  *most_records = 0;  // as many as fit
}

void CUPTIAPI take_buffer(CUcontext /*context*/, std::uint32_t /*stream*/, std::uint8_t* buffer,
                          std::size_t /*bytes*/, std::size_t valid_bytes) {
  const std::lock_guard lock(recorded().mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
    add(recorded().activity, record);
  }
  std::free(buffer);
}

Status wait_for_device() {
  const cudaError_t result = cudaDeviceSynchronize();
  return result == cudaSuccess
             ? Status()
             : Status(operation_error(fmt::format("the device: {}", cudaGetErrorString(result))));
}

}  // namespace

Result<GpuActivity> record_activity(const std::function<Status()>& work) {
  HEADRACE_TRY(wait_for_device());  // what came before does not count
  HEADRACE_TRY(ok(cuptiActivityRegisterCallbacks(&give_buffer, &take_buffer),
                  "cuptiActivityRegisterCallbacks"));
  for (const CUpti_ActivityKind kind : k_kinds) {
    HEADRACE_TRY(ok(cuptiActivityEnable(kind), "cuptiActivityEnable"));
  }
  Status status = work();
  if (Status waited = wait_for_device(); status) {
    status = std::move(waited);
  }
  const Status flushed =
      ok(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
  for (const CUpti_ActivityKind kind : k_kinds) {
    HEADRACE_TRY(ok(cuptiActivityDisable(kind), "cuptiActivityDisable"));
  }
  HEADRACE_TRY(std::move(status));
  HEADRACE_TRY(flushed);
  const std::lock_guard lock(recorded().mutex);
  return std::exchange(recorded().activity, {});
}

}  // namespace headrace::testing

#else

namespace headrace::testing {

Result<GpuActivity> record_activity(const std::function<Status()>& /*work*/) {
  return operation_error("built without CUPTI: cupti.h or libcupti was not in the CUDA toolkit");
}

}  // namespace headrace::testing

#endif
