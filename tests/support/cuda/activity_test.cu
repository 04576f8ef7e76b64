// The recorder sees what it must tell apart: copies by the copy engines, and kernels.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "support/cuda/activity.h"

namespace headrace::testing {
namespace {

constexpr std::size_t k_bytes = std::size_t{1} << 20;

__global__ void set_first(int* values) { values[0] = 1; }

class ActivityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaMalloc(&from_, k_bytes), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&to_, k_bytes), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    cudaStreamDestroy(stream_);
    cudaFree(to_);
    cudaFree(from_);
  }
  Status copy() {
    return cudaMemcpyAsync(to_, from_, k_bytes, cudaMemcpyDeviceToDevice, stream_) == cudaSuccess
               ? Status()
               : Status(operation_error("the copy was refused"));
  }

  void* from_ = nullptr;
  void* to_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

TEST_F(ActivityTest, copies_alone_launch_no_kernel) {
  const auto activity = record_activity([&]() -> Status {
    for (int i = 0; i < 3; ++i) {
      HEADRACE_TRY(copy());
    }
    return {};
  });
  ASSERT_TRUE(activity) << activity.error().describe();
  EXPECT_EQ(activity->copies, 3);
  EXPECT_EQ(activity->copied_bytes, 3 * k_bytes);
  EXPECT_TRUE(activity->kernels.empty()) << activity->kernels.front();
}

TEST_F(ActivityTest, a_kernel_among_copies_is_seen_and_named) {
  const auto activity = record_activity([&]() -> Status {
    HEADRACE_TRY(copy());
    set_first<<<1, 1, 0, stream_>>>(static_cast<int*>(to_));
    return copy();
  });
  ASSERT_TRUE(activity) << activity.error().describe();
  EXPECT_EQ(activity->copies, 2);
  ASSERT_EQ(activity->kernels.size(), 1U);
  EXPECT_NE(activity->kernels.front().find("set_first"), std::string::npos);
}

TEST_F(ActivityTest, what_came_before_does_not_count) {
  set_first<<<1, 1, 0, stream_>>>(static_cast<int*>(to_));
  const auto activity = record_activity([&] { return copy(); });
  ASSERT_TRUE(activity) << activity.error().describe();
  EXPECT_EQ(activity->copies, 1);
  EXPECT_TRUE(activity->kernels.empty());
}

}  // namespace
}  // namespace headrace::testing
