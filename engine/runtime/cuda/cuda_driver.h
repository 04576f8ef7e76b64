#pragma once

#include <cuda.h>

#include <source_location>
#include <string_view>

#include "base/result.h"

namespace headrace {

/// The functions of the driver that the runtime library does not offer. Found when first asked for,
/// so that a program with CUDA inside also starts where there is no driver.
struct CudaDriver {
  decltype(&::cuGetErrorString) get_error_string = nullptr;
  decltype(&::cuDeviceGet) device_get = nullptr;
  decltype(&::cuDeviceGetAttribute) device_get_attribute = nullptr;
  decltype(&::cuStreamWaitValue64) stream_wait_value_64 = nullptr;
  decltype(&::cuStreamWriteValue64) stream_write_value_64 = nullptr;
  decltype(&::cuMemGetAllocationGranularity) mem_get_allocation_granularity = nullptr;
  decltype(&::cuMemCreate) mem_create = nullptr;
  decltype(&::cuMemRelease) mem_release = nullptr;
  decltype(&::cuMemExportToShareableHandle) mem_export = nullptr;
  decltype(&::cuMemImportFromShareableHandle) mem_import = nullptr;
  decltype(&::cuMemAddressReserve) mem_address_reserve = nullptr;
  decltype(&::cuMemAddressFree) mem_address_free = nullptr;
  decltype(&::cuMemMap) mem_map = nullptr;
  decltype(&::cuMemUnmap) mem_unmap = nullptr;
  decltype(&::cuMemSetAccess) mem_set_access = nullptr;

  /// Whether the current device has what the attribute names.
  Result<bool> offers(CUdevice_attribute attribute) const;

  /// Error where there is no driver, or one too old to have all of them.
  static Result<const CudaDriver*> get();

  /// As cuda_status, for what the driver answers.
  Status status(CUresult code, std::string_view what,
                std::source_location where = std::source_location::current()) const;
};

}  // namespace headrace
