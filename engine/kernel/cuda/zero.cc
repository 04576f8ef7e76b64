#include "kernel/cuda/zero.h"

#include "runtime/cuda/cuda_error.h"

namespace headrace {

Status launch_zero(cudaStream_t stream, void* address, std::size_t pitch, std::size_t bytes,
                   std::size_t rows) {
  if (rows == 0 || bytes == 0) {
    return {};
  }
  if (rows == 1 || pitch == bytes) {
    return cuda_status(cudaMemsetAsync(address, 0, rows * bytes, stream), "zeroing memory");
  }
  return cuda_status(cudaMemset2DAsync(address, pitch, 0, bytes, rows, stream), "zeroing rows");
}

}  // namespace headrace
