#include "kernel/cuda/launch.h"

#include "kernel/cuda/twin_memory.h"

namespace headrace {
namespace {

using LaunchTest = testing::DeviceTest;

TEST(BlocksForTest, no_block_without_work_and_no_more_than_allowed) {
  EXPECT_EQ(blocks_for(1, 100), 1U);
  EXPECT_EQ(blocks_for(k_block_warps, 100), 1U);
  EXPECT_EQ(blocks_for(k_block_warps + 1, 100), 2U);
  EXPECT_EQ(blocks_for(1'000'000, 100), 100U);
  EXPECT_EQ(blocks_for(1'000'000, 0), 1U);
}

TEST_F(LaunchTest, a_launch_that_fails_is_an_operation_error_with_cudas_code_and_leaves_none) {
  void (*const no_kernel)(int) = nullptr;
  const Status status = launch("launch of no kernel", handle(), {}, no_kernel, 0);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().scope, Scope::operation);
  EXPECT_NE(status.error().native_code, 0);
  EXPECT_NE(status.error().message.find("launch of no kernel"), std::string::npos);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

}  // namespace
}  // namespace headrace
