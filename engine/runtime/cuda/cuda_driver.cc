#include "runtime/cuda/cuda_driver.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "runtime/cuda/cuda_error.h"

namespace headrace {
namespace {

constexpr unsigned int k_driver_version = 12000;  // the interface asked for

template <class Function>
Status find(const char* name, Function& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult answer = cudaDriverEntryPointSymbolNotFound;
  HEADRACE_TRY(cuda_status(::cudaGetDriverEntryPointByVersion(name, &found, k_driver_version,
                                                              cudaEnableDefault, &answer),
                           "cannot ask the NVIDIA driver for its functions"));
  if (answer != cudaDriverEntryPointSuccess || found == nullptr) {
    return session_error(
        fmt::format("the NVIDIA driver has no {}; CUDA 12.0 or newer is needed", name));
  }
  function = reinterpret_cast<Function>(found);
  return {};
}

Result<CudaDriver> load() {
  CudaDriver driver;
  HEADRACE_TRY(find("cuGetErrorString", driver.get_error_string));
  HEADRACE_TRY(find("cuDeviceGet", driver.device_get));
  HEADRACE_TRY(find("cuDeviceGetAttribute", driver.device_get_attribute));
  HEADRACE_TRY(find("cuStreamWaitValue64", driver.stream_wait_value_64));
  HEADRACE_TRY(find("cuStreamWriteValue64", driver.stream_write_value_64));
  HEADRACE_TRY(find("cuMemGetAllocationGranularity", driver.mem_get_allocation_granularity));
  HEADRACE_TRY(find("cuMemCreate", driver.mem_create));
  HEADRACE_TRY(find("cuMemRelease", driver.mem_release));
  HEADRACE_TRY(find("cuMemExportToShareableHandle", driver.mem_export));
  HEADRACE_TRY(find("cuMemImportFromShareableHandle", driver.mem_import));
  HEADRACE_TRY(find("cuMemAddressReserve", driver.mem_address_reserve));
  HEADRACE_TRY(find("cuMemAddressFree", driver.mem_address_free));
  HEADRACE_TRY(find("cuMemMap", driver.mem_map));
  HEADRACE_TRY(find("cuMemUnmap", driver.mem_unmap));
  HEADRACE_TRY(find("cuMemSetAccess", driver.mem_set_access));
  return driver;
}

}  // namespace

Result<const CudaDriver*> CudaDriver::get() {
  static const Result<CudaDriver> driver = load();
  if (!driver) {
    return driver.error();
  }
  return &driver.value();
}

Result<bool> CudaDriver::offers(CUdevice_attribute attribute) const {
  int ordinal = 0;
  HEADRACE_TRY(cuda_status(::cudaGetDevice(&ordinal), "cannot ask for the current device"));
  CUdevice device = 0;
  int value = 0;
  HEADRACE_TRY(status(device_get(&device, ordinal), "cannot ask for the current device"));
  HEADRACE_TRY(
      status(device_get_attribute(&value, attribute, device), "cannot ask what the device can do"));
  return value != 0;
}

Status CudaDriver::status(CUresult code, std::string_view what, std::source_location where) const {
  if (code == CUDA_SUCCESS) {
    return {};
  }
  const char* text = nullptr;
  get_error_string(code, &text);
  return Error{.scope = Scope::session,
               .message = fmt::format("{}: the NVIDIA driver says {}", what,
                                      text == nullptr ? "nothing about it" : text),
               .native_code = static_cast<int>(code),
               .where = where};
}

}  // namespace headrace
