#include "runtime/cuda/cuda_error.h"

#include <fmt/format.h>

namespace headrace {
namespace {

/// Errors that the runtime documents as leaving the process in an inconsistent state.
bool context_is_lost(cudaError_t code) {
  switch (code) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorExternalDevice:
    case cudaErrorMpsClientTerminated:
      return true;
    default:
      return false;
  }
}

}  // namespace

Status cuda_status(cudaError_t code, std::string_view what, std::source_location where) {
  if (code == cudaSuccess) {
    return {};
  }
  static_cast<void>(cudaGetLastError());  // or the caller's next check of its own takes it for its
  return Error{
      .scope = context_is_lost(code) ? Scope::session : Scope::operation,
      .message = fmt::format("{}: {} ({})", what, cudaGetErrorString(code), cudaGetErrorName(code)),
      .native_code = static_cast<int>(code),
      .where = where};
}

}  // namespace headrace
