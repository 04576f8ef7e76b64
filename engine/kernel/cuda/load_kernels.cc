#include "kernel/cuda/load_kernels.h"

#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <vector>

#include "kernel/cuda/accumulate.h"
#include "kernel/cuda/cast.h"
#include "kernel/cuda/copy.h"
#include "kernel/cuda/fold.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/sum.h"
#include "kernel/cuda/write_scaled.h"
#include "kernel/cuda/zero.h"
#include "runtime/cuda/cuda_stream.h"

namespace headrace {
namespace {

// A cell takes the largest operand of a launch: a group of the sum in fp32.
constexpr std::size_t k_cell_bytes = 32;
constexpr std::size_t k_elements = k_cell_bytes / sizeof(float);
// Some tables hold few jobs and some many: there is a kernel for each.
constexpr std::array<std::size_t, 2> k_jobs = {1, 512};
constexpr std::size_t k_cells = 2 * k_jobs.back();

/// Zeros, of which the first half is written and the second read: zeros again.
class Cells {
 public:
  static Result<Cells> make() {
    void* memory = nullptr;
    HEADRACE_TRY(cuda_status(::cudaMalloc(&memory, k_cells * k_cell_bytes),
                             "cannot allocate memory to load the kernels with"));
    return Cells(memory);
  }
  void* memory() const { return memory_.get(); }
  float* to(std::size_t cell) const { return at(cell); }
  float* from(std::size_t cell) const { return at(k_cells / 2 + cell); }

 private:
  explicit Cells(void* memory) : memory_(memory, [](void* made) { ::cudaFree(made); }) {}
  float* at(std::size_t cell) const {
    return static_cast<float*>(memory_.get()) + cell * (k_cell_bytes / sizeof(float));
  }

  std::shared_ptr<void> memory_;
};

Status run_jobs(cudaStream_t stream, const Cells& cells, std::size_t count) {
  std::vector<CopySegment> copies;
  std::vector<CastJob> casts;
  std::vector<AccumulateJob> additions;
  for (std::size_t i = 0; i < count; ++i) {
    copies.push_back({cells.to(i), cells.from(i), 1});
    casts.push_back({cells.to(i), DType::bfloat16, cells.from(i), DType::float32, 1});
    additions.push_back({cells.to(i), cells.from(i), DType::float32, 1});
  }
  HEADRACE_TRY(copy_blocks(stream, copies, 1));
  HEADRACE_TRY(launch_cast(stream, casts, 1));
  HEADRACE_TRY(launch_accumulate(stream, additions, Adders::one, 1));
  return launch_accumulate(stream, additions, Adders::many, 1);
}

Status run_sums(cudaStream_t stream, const Cells& cells, SumMethod method) {
  constexpr DType k_full = DType::float32;
  constexpr DType k_half = DType::bfloat16;
  const std::vector<DType> mixed = {k_full, k_half};
  // Few sources and many have a kernel each where all are of one dtype.
  constexpr std::size_t k_many = 5;
  for (const std::vector<DType>& dtypes :
       {std::vector<DType>{k_full}, std::vector<DType>{k_half}, std::vector<DType>(k_many, k_full),
        std::vector<DType>(k_many, k_half), mixed}) {
    SumJob job{.to = cells.to(0), .rows = 1, .elements = k_elements};
    for (std::size_t s = 0; s < dtypes.size(); ++s) {
      job.sources.push_back({cells.from(s), 0, dtypes[s]});
    }
    for (const bool add : {false, true}) {
      job.add = add;
      HEADRACE_TRY(launch_sum(stream, job, method, 1));
    }
  }
  return {};
}

Status run_all(cudaStream_t stream, const Cells& cells) {
  HEADRACE_TRY(launch_zero(stream, cells.memory(), 0, k_cells * k_cell_bytes, 1));
  HEADRACE_TRY(launch_zero(stream, cells.memory(), k_cell_bytes, k_cell_bytes / 2, 2));
  for (const std::size_t count : k_jobs) {
    HEADRACE_TRY(run_jobs(stream, cells, count));
  }
  const std::vector<CastJob> widening = {
      {cells.to(0), DType::float32, cells.from(0), DType::bfloat16, 1}};
  HEADRACE_TRY(launch_cast(stream, widening, 1));
  const std::vector<FoldJob> folds = {{cells.to(0), {cells.from(0)}, k_elements}};
  HEADRACE_TRY(launch_fold(stream, folds, 1));
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const bool add : {false, true}) {
      HEADRACE_TRY(
          launch_write_scaled(stream, cells.to(0), dtype, cells.from(0), 1.0F, k_elements, add, 1));
    }
  }
  HEADRACE_TRY(run_sums(stream, cells, SumMethod::plain));
  HEADRACE_TRY_ASSIGN(const int capability, compute_capability());
  return capability < k_hopper ? Status() : run_sums(stream, cells, SumMethod::bulk);
}

}  // namespace

Status load_kernels(Milliseconds limit) {
  HEADRACE_TRY_ASSIGN(const Cells cells, Cells::make());
  HEADRACE_TRY_ASSIGN(const auto stream, CudaStream::make(StreamPriority::high, {}));
  const Status launched = run_all(stream->handle().get(), cells);
  HEADRACE_TRY_ASSIGN(Event done, stream->record());
  Status passed = done.wait(Deadline(limit));
  HEADRACE_TRY(launched);
  return passed;
}

}  // namespace headrace
