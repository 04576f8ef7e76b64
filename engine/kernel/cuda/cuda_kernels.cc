#include "kernel/cuda/cuda_kernels.h"

#include "kernel/cuda/cast.h"
#include "kernel/cuda/fold.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/write_scaled.h"
#include "kernel/cuda/zero.h"
#include "runtime/cuda/cuda_stream.h"

namespace headrace {

Result<CudaKernels> CudaKernels::create(CudaKernelOptions options) {
  if (options.max_blocks <= 0) {
    HEADRACE_TRY_ASSIGN(const int multiprocessors,
                        device_attribute(cudaDevAttrMultiProcessorCount));
    options.max_blocks = multiprocessors * static_cast<int>(k_blocks_per_multiprocessor);
  }
  return CudaKernels(options);
}

Status CudaKernels::cast(Stream& stream, std::vector<CastJob> jobs) const {
  HEADRACE_TRY_ASSIGN(const cudaStream_t handle, native_stream(stream, "cast"));
  return launch_cast(handle, jobs, options_.max_blocks);
}

Status CudaKernels::sum(Stream& stream, SumJob job) const {
  HEADRACE_TRY_ASSIGN(const cudaStream_t handle, native_stream(stream, "sum"));
  return launch_sum(handle, job, options_.sum, options_.max_blocks);
}

Status CudaKernels::fold(Stream& stream, std::vector<FoldJob> jobs) const {
  HEADRACE_TRY_ASSIGN(const cudaStream_t handle, native_stream(stream, "fold"));
  return launch_fold(handle, jobs, options_.max_blocks);
}

Status CudaKernels::write_scaled(Stream& stream, void* destination, DType dtype,
                                 const float* source, float scale, std::size_t count,
                                 bool add) const {
  HEADRACE_TRY_ASSIGN(const cudaStream_t handle, native_stream(stream, "write_scaled"));
  return launch_write_scaled(handle, destination, dtype, source, scale, count, add,
                             options_.max_blocks);
}

Status CudaKernels::zero(Stream& stream, void* address, std::size_t pitch, std::size_t bytes,
                         std::size_t rows) const {
  HEADRACE_TRY_ASSIGN(const cudaStream_t handle, native_stream(stream, "zero"));
  return launch_zero(handle, address, pitch, bytes, rows);
}

}  // namespace headrace
