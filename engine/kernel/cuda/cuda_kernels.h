#pragma once

#include "kernel/cuda/sum.h"
#include "kernel/kernels.h"

namespace headrace {

struct CudaKernelOptions {
  /// Blocks of a launch at most: fewer leave multiprocessors to computation. 0: as many as the
  /// device runs at a time.
  int max_blocks = 0;
  SumMethod sum = SumMethod::automatic;
};

/// The kernels of one CUDA device's memory, which may include peers' memory that it can reach. All
/// calls launch on the stream's native handle and return at once; jobs are copied into the launch.
/// The stream's device must be the calling thread's current one. Every address is aligned to its
/// elements. Thread: any.
class CudaKernels final : public Kernels {
 public:
  /// For the calling thread's current device.
  static Result<CudaKernels> create(CudaKernelOptions options);

  Status cast(Stream& stream, std::vector<CastJob> jobs) const override;
  Status sum(Stream& stream, SumJob job) const override;
  Status fold(Stream& stream, std::vector<FoldJob> jobs) const override;
  Status write_scaled(Stream& stream, void* destination, DType dtype, const float* source,
                      float scale, std::size_t count, bool add) const override;
  Status zero(Stream& stream, void* address, std::size_t pitch, std::size_t bytes,
              std::size_t rows) const override;

 private:
  explicit CudaKernels(CudaKernelOptions options) : options_(options) {}

  CudaKernelOptions options_;
};

}  // namespace headrace
