#include "kernel/cuda/load_kernels.h"

#include <unistd.h>

#include <cstdlib>
#include <functional>

#include "kernel/cuda/accumulate.h"
#include "kernel/cuda/cast.h"
#include "kernel/cuda/copy.h"
#include "kernel/cuda/fold.h"
#include "kernel/cuda/sum.h"
#include "kernel/cuda/twin_memory.h"
#include "kernel/cuda/write_scaled.h"
#include "runtime/cuda/cuda_stream.h"
#include "support/cuda/cuda_group.h"
#include "support/cuda/held_stream.h"

namespace headrace {
namespace {

constexpr Milliseconds k_limit{10'000};

// Launches kernels on a stream while another stands still, in a process that has launched none
// before; 0 when all have run.
int launch_beside_a_held_stream() {
  if (!load_kernels(k_limit)) {
    return 2;
  }
  constexpr std::size_t k_cells = 1024;
  float* cells = nullptr;
  if (cudaMalloc(reinterpret_cast<void**>(&cells), k_cells * 32) != cudaSuccess) {
    return 3;
  }
  ::alarm(20);  // a launch that waits for the held stream never returns
  const testing::HeldStream held;
  const auto stream = CudaStream::make(StreamPriority::high, {}).value();
  cudaStream_t native = stream->handle().get();
  const auto at = [cells](std::size_t cell) { return cells + cell * 8; };
  bool launched = true;
  for (const std::size_t jobs : {std::size_t{1}, k_cells / 2}) {
    std::vector<CopySegment> copies;
    std::vector<AccumulateJob> additions;
    std::vector<CastJob> casts;
    for (std::size_t i = 0; i < jobs; ++i) {
      copies.push_back({at(i), at(i + k_cells / 2), 5});
      additions.push_back({at(i), at(i + k_cells / 2), DType::bfloat16, 3});
      casts.push_back({at(i), DType::float32, at(i + k_cells / 2), DType::bfloat16, 3});
    }
    launched = launched && copy_blocks(native, copies, 2) && launch_cast(native, casts, 2) &&
               launch_accumulate(native, additions, Adders::one, 2) &&
               launch_accumulate(native, additions, Adders::many, 2);
  }
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    SumJob sum{.to = at(0), .rows = 1, .elements = 8};
    for (const std::size_t sources : {1U, 2U, 8U}) {
      sum.sources.assign(sources, {at(1), 0, dtype});
      for (const bool add : {false, true}) {
        sum.add = add;
        launched = launched && launch_sum(native, sum, SumMethod::plain, 2) &&
                   launch_sum(native, sum, SumMethod::automatic, 2) &&
                   launch_write_scaled(native, at(2), dtype, at(3), 2.0F, 7, add, 2);
      }
    }
  }
  launched = launched && launch_fold(native, std::vector<FoldJob>{{at(0), {at(1), at(2)}, 8}}, 2);
  Event done = stream->record().value();
  return launched && done.wait(Deadline(k_limit)) ? 0 : 1;
}

using LoadKernelsTest = testing::DeviceTest;

TEST_F(LoadKernelsTest, loaded_kernels_start_while_another_stream_waits) {
  if (std::getenv("HEADRACE_TEST_SMALL") != nullptr) {
    GTEST_SKIP() << "tools change how kernels are loaded";
  }
  // In a process of its own: others have launched kernels in this one.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(::_exit(launch_beside_a_held_stream()), ::testing::ExitedWithCode(0), "");
}

TEST_F(LoadKernelsTest, loading_again_changes_nothing_and_leaves_no_error) {
  for (int time = 0; time < 2; ++time) {
    const Status status = load_kernels(k_limit);
    ASSERT_TRUE(status) << status.error().describe();
  }
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

}  // namespace
}  // namespace headrace
