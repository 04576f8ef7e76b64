#include "kernel/cuda/multimem.h"

#include "kernel/cuda/twin_memory.h"

namespace headrace {
namespace {

using CudaMultimemTest = testing::DeviceTest;

TEST_F(CudaMultimemTest, a_device_without_multicast_refuses_and_launches_nothing) {
  const Result<bool> supported = multicast_supported();
  ASSERT_TRUE(supported) << supported.error().describe();
  if (supported.value()) {
    GTEST_SKIP() << "this device has multicast; tests make no multicast object";
  }
  for (const Status& status : {multimem_sum(handle(), nullptr, nullptr, DType::float32, 8, 1.0F, 1),
                               multimem_accumulate(handle(), nullptr, nullptr, 8, 1),
                               multimem_copy(handle(), nullptr, nullptr, 8, 1)}) {
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().scope, Scope::operation);
  }
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(CudaMultimemTest, sizes_that_words_cannot_make_up_are_refused) {
  EXPECT_FALSE(multimem_sum(handle(), nullptr, nullptr, DType::bfloat16, 7, 1.0F, 1));
  EXPECT_FALSE(multimem_copy(handle(), nullptr, nullptr, 6, 1));
}

}  // namespace
}  // namespace headrace
