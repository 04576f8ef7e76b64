#pragma once

#include <cuda_runtime_api.h>

#include <source_location>
#include <string_view>

#include "base/result.h"

namespace headrace {

/// Success, or an error that says what failed ("launch of the sum kernel") and why; `native_code`
/// is the CUDA code. An error after which the device's context is lost ends the session, any other
/// concerns the one operation. The runtime's last error of this thread is taken back.
Status cuda_status(cudaError_t code, std::string_view what,
                   std::source_location where = std::source_location::current());

}  // namespace headrace
