#include "kernel/cuda/zero.h"

#include <climits>

#include "runtime/cuda/cuda_error.h"

namespace headrace {
namespace {

constexpr std::size_t k_most_pitch = INT_MAX;  // of two-dimensional operations of the runtime

}  // namespace

Status launch_zero(cudaStream_t stream, void* address, std::size_t pitch, std::size_t bytes,
                   std::size_t rows) {
  if (rows == 0 || bytes == 0) {
    return {};
  }
  if (rows == 1 || pitch == bytes) {
    return cuda_status(cudaMemsetAsync(address, 0, rows * bytes, stream), "zeroing memory");
  }
  if (pitch > k_most_pitch) {
    for (std::size_t row = 0; row < rows; ++row) {
      HEADRACE_TRY(cuda_status(
          cudaMemsetAsync(static_cast<std::byte*>(address) + row * pitch, 0, bytes, stream),
          "zeroing a row"));
    }
    return {};
  }
  return cuda_status(cudaMemset2DAsync(address, pitch, 0, bytes, rows, stream), "zeroing rows");
}

}  // namespace headrace
