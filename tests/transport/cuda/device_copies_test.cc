// What carries copies, and how many hardware queues waits may hold: decided without a device.

#include "transport/cuda/device_copies.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "transport/cuda/device_checks.h"

namespace headrace::testing {
namespace {

std::byte* at(std::size_t address) { return reinterpret_cast<std::byte*>(address); }

TEST(DeviceCopies, neighbours_at_both_ends_become_one) {
  const std::vector<CopySegment> copies{{.to = at(1000), .from = at(9000), .bytes = 10},
                                        {.to = at(1010), .from = at(9010), .bytes = 6},
                                        {.to = at(1016), .from = at(9017), .bytes = 4},
                                        {.to = at(2000), .from = at(3000), .bytes = 0},
                                        {.to = at(1020), .from = at(9021), .bytes = 5}};
  const std::vector<CopySegment> result = merged(copies);
  ASSERT_EQ(result.size(), 2U);
  EXPECT_EQ(result[0].to, at(1000));
  EXPECT_EQ(result[0].bytes, 16U);
  EXPECT_EQ(result[1].from, at(9017));
  EXPECT_EQ(result[1].bytes, 9U);
  EXPECT_TRUE(merged({}).empty());
}

TEST(DeviceCopies, a_kernel_carries_what_is_bound_by_descriptors) {
  const CopyChoice choice;
  const auto of = [](std::size_t pieces, std::size_t bytes) {
    return std::vector<CopySegment>(pieces, {.to = nullptr, .from = nullptr, .bytes = bytes});
  };
  EXPECT_TRUE(choice.by_kernel(of(30, 64 << 10)));
  EXPECT_FALSE(choice.by_kernel(of(30, 64 << 20)));
  EXPECT_FALSE(choice.by_kernel(of(1, 4 << 10)));
  CopyChoice engine;
  engine.way = CopyWay::copy_engine;
  EXPECT_FALSE(engine.by_kernel(of(30, 64)));
  CopyChoice kernel;
  kernel.way = CopyWay::kernel;
  EXPECT_TRUE(kernel.by_kernel(of(1, 64 << 20)));
}

/// The variable as a test wants it; as it was, afterwards.
class Queues {
 public:
  explicit Queues(const char* value) {
    if (const char* before = std::getenv(k_name)) {
      before_ = before;
    }
    value == nullptr ? ::unsetenv(k_name) : ::setenv(k_name, value, 1);
  }
  ~Queues() { before_.empty() ? ::unsetenv(k_name) : ::setenv(k_name, before_.c_str(), 1); }
  Queues(const Queues&) = delete;
  Queues& operator=(const Queues&) = delete;

 private:
  static constexpr const char* k_name = "CUDA_DEVICE_MAX_CONNECTIONS";
  std::string before_;
};

TEST(DeviceChecks, a_device_older_than_what_was_compiled_is_told_so) {
  EXPECT_TRUE(check_compute_capability(90, "90"));
  EXPECT_TRUE(check_compute_capability(100, "90"));
  EXPECT_TRUE(check_compute_capability(90, "100-real,90-virtual"));
  EXPECT_TRUE(check_compute_capability(80, "native"));
  const Status status = check_compute_capability(89, "90,100-real");
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("8.9"), std::string::npos) << status.error().message;
  EXPECT_NE(status.error().message.find("-DCMAKE_CUDA_ARCHITECTURES=89"), std::string::npos);
}

TEST(DeviceChecks, waiting_streams_leave_a_hardware_queue_to_computation) {
  {
    const Queues none(nullptr);
    EXPECT_TRUE(check_hardware_queues(7));
    const Status status = check_hardware_queues(8);
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("CUDA_DEVICE_MAX_CONNECTIONS to 9"), std::string::npos)
        << status.error().message;
    EXPECT_FALSE(check_hardware_queues(0));
  }
  {
    const Queues many("32");
    EXPECT_TRUE(check_hardware_queues(31));
    EXPECT_FALSE(check_hardware_queues(32));
  }
  for (const char* wrong : {"0", "33", "eight", "8 ", ""}) {
    const Queues given(wrong);
    const Status status = check_hardware_queues(1);
    ASSERT_FALSE(status) << wrong;
    EXPECT_NE(status.error().message.find("1 to 32"), std::string::npos);
  }
}

}  // namespace
}  // namespace headrace::testing
