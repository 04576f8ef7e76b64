#include "transport/cuda/device_checks.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "runtime/cuda/cuda_driver.h"

namespace headrace {
namespace {

constexpr const char* k_queues_variable = "CUDA_DEVICE_MAX_CONNECTIONS";
constexpr int k_default_queues = 8;

Result<int> hardware_queues() {
  const char* text = std::getenv(k_queues_variable);
  if (text == nullptr) {
    return k_default_queues;
  }
  const std::string_view digits(text);
  int queues = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), queues);
  if (error != std::errc() || end != digits.end() || queues < 1 || queues > 32) {
    return operation_error(
        fmt::format("{}={}: it must be a number from 1 to 32", k_queues_variable, digits));
  }
  return queues;
}

}  // namespace

Status check_stream_memory_operations() {
  HEADRACE_TRY_ASSIGN(const CudaDriver* driver, CudaDriver::get());
  HEADRACE_TRY_ASSIGN(const bool offered,
                      driver->offers(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS));
  if (!offered) {
    return session_error(
        "this device has no 64-bit stream memory operations, on which signals between ranks stand; "
        "use a newer device or driver");
  }
  return {};
}

Status check_hardware_queues(int streams) {
  HEADRACE_TRY_ASSIGN(const int queues, hardware_queues());
  if (streams < 1 || streams >= queues) {
    return operation_error(fmt::format(
        "{} streams that may wait do not fit {} hardware queues ({}), of which one is "
        "for computation: use 1 to {} streams, or set {} to {} or more (32 at most; "
        "ranks that share a device through MPS share its queues)",
        streams, queues, k_queues_variable, queues - 1, k_queues_variable, streams + 1));
  }
  return {};
}

}  // namespace headrace
