// Ranks that do not get as far as work: each learns why, and in time.

#include <gtest/gtest.h>
#include <unistd.h>

#include "support/cuda/device_world.h"

namespace headrace::testing {
namespace {

constexpr int k_culprit = 1;

class DeviceWiring : public DeviceWorldTest {
 protected:
  void SetUp() override {
    if (GetParam() < 2) {
      GTEST_SKIP() << "a rank alone is wired to nobody";
    }
    DeviceWorldTest::SetUp();
  }

  /// Of a rank that may have come up: why the session is over.
  static Status end_of(const Result<std::unique_ptr<Transport>>& transport, Milliseconds limit) {
    if (!transport) {
      return transport.error();
    }
    const Deadline deadline(limit);
    while (!deadline.passed()) {
      HEADRACE_TRY((*transport)->liveness().check());
      ::usleep(5'000);
    }
    return {};
  }
};

// The culprit expects more control memory than its peers have; they find all that they expect.
TEST_P(DeviceWiring, a_rank_that_cannot_map_its_peers_is_named_by_all) {
  run_ranks(device_world(GetParam()), [](const Rank& self) {
    TransportConfig config = self.config;
    if (self.rank == k_culprit) {
      config.control_bytes *= 2;
    }
    const auto transport = self.make(config);
    if (self.rank == k_culprit) {
      ASSERT_FALSE(transport);
      EXPECT_NE(transport.error().message.find("rank 0"), std::string::npos)
          << transport.error().describe();
      expect_device_works();
      ::usleep(2'000'000);  // alive, so that nothing but its page can tell
      return;
    }
    const Status status = end_of(transport, Milliseconds(1'500));
    ASSERT_FALSE(status) << "nobody told";
    EXPECT_EQ(status.error().rank, k_culprit) << status.error().describe();
    EXPECT_NE(status.error().message.find("out of reach"), std::string::npos)
        << status.error().message;
  });
}

// More waiting streams than queues, on one rank: its peers are told before they wait for it.
TEST_P(DeviceWiring, a_rank_that_has_too_few_queues_is_named_by_all) {
  run_ranks(device_world(GetParam()), [](const Rank& self) {
    if (self.rank == k_culprit) {
      ASSERT_EQ(::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1), 0);
    }
    const std::int64_t begin = now_ns();
    const auto transport = self.transport();
    ASSERT_FALSE(transport);
    EXPECT_NE(transport.error().message.find("CUDA_DEVICE_MAX_CONNECTIONS"), std::string::npos)
        << transport.error().describe();
    EXPECT_LT(now_ns() - begin, std::int64_t{15'000'000'000});
    if (self.rank != k_culprit) {
      EXPECT_NE(transport.error().message.find("rank 1"), std::string::npos)
          << transport.error().describe();
    }
  });
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceWiring);
INSTANTIATE_TEST_SUITE_P(Cuda, DeviceWiring, ::testing::ValuesIn(gpu_worlds_up_to(4)));

}  // namespace
}  // namespace headrace::testing
