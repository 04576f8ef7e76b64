#include "transport/cuda/registered_memory.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <utility>

#include "runtime/cuda/cuda_error.h"

namespace headrace {

Result<std::shared_ptr<RegisteredMemory>> RegisteredMemory::make(std::shared_ptr<Arena> memory,
                                                                 std::size_t bytes) {
  HEADRACE_TRY(cuda_status(
      ::cudaHostRegister(memory->data(), bytes, cudaHostRegisterMapped | cudaHostRegisterPortable),
      fmt::format("cannot register {} bytes of shared memory with the device (is the limit of "
                  "locked memory, ulimit -l, too low?)",
                  bytes)));
  std::shared_ptr<RegisteredMemory> result(new RegisteredMemory(std::move(memory)));
  void* device = nullptr;
  HEADRACE_TRY(cuda_status(::cudaHostGetDevicePointer(&device, result->host(), 0),
                           "cannot ask where the device sees shared memory"));
  result->device_ = static_cast<std::byte*>(device);
  return result;
}

RegisteredMemory::~RegisteredMemory() { static_cast<void>(::cudaHostUnregister(memory_->data())); }

}  // namespace headrace
