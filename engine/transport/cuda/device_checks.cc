#include "transport/cuda/device_checks.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdlib>

#include "kernel/cuda/launch.h"
#include "runtime/cuda/cuda_driver.h"
#include "runtime/cuda/cuda_error.h"

namespace headrace {
namespace {

constexpr const char* k_queues_variable = "CUDA_DEVICE_MAX_CONNECTIONS";
constexpr int k_default_queues = 8;
constexpr const char* k_driver_file = "/dev/nvidiactl";

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

Status check_device() {
  int devices = 0;
  const cudaError_t counted = ::cudaGetDeviceCount(&devices);
  // Without a driver the runtime speaks of one that is too old.
  if (counted == cudaErrorInsufficientDriver && ::access(k_driver_file, F_OK) != 0) {
    return session_error(
        fmt::format("there is no NVIDIA GPU with a driver here: no {}", k_driver_file));
  }
  HEADRACE_TRY(cuda_status(counted, "cannot use the NVIDIA GPU here"));
  if (devices == 0) {
    return session_error("there is no NVIDIA GPU here");
  }
  HEADRACE_TRY_ASSIGN(const int capability, compute_capability());
  return check_compute_capability(capability, HEADRACE_CUDA_ARCHITECTURES);
}

Status check_compute_capability(int capability, std::string_view architectures) {
  int oldest = INT_MAX;
  for (std::size_t begin = 0; begin < architectures.size();) {
    const std::string_view one =
        architectures.substr(begin, architectures.find(',', begin) - begin);
    int number = 0;
    if (std::from_chars(one.begin(), one.end(), number).ec == std::errc()) {
      oldest = std::min(oldest, number);
    }
    begin += one.size() + 1;
  }
  // Named otherwise ("native"): loading the kernels will tell.
  if (oldest == INT_MAX || capability >= oldest) {
    return {};
  }
  return session_error(fmt::format(
      "this device has compute capability {}.{}, and this build has kernels for {}.{} and newer; "
      "configure with -DCMAKE_CUDA_ARCHITECTURES={}",
      capability / 10, capability % 10, oldest / 10, oldest % 10, capability));
}

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
