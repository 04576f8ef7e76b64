#include "runtime/liveness.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>

namespace headrace {
namespace {

TEST(LivenessTest, a_peer_without_a_heartbeat_is_silent_after_the_limit_and_not_before) {
  LivenessPage own{};
  LivenessPage stopped{};
  std::vector<LivenessPeer> peers;
  peers.push_back({.rank = 3, .page = &stopped, .death = Fd()});
  const auto begin = Clock::now();
  const auto liveness = Liveness::start(
      0, &own, std::move(peers), {.interval = Milliseconds(10), .silence = Milliseconds(300)});
  ASSERT_TRUE(liveness) << liveness.error().describe();
  const Deadline deadline(Milliseconds(60'000));
  while ((*liveness)->check() && !deadline.passed()) {
    std::this_thread::sleep_for(Milliseconds(1));
  }
  EXPECT_GE(Clock::now() - begin, Milliseconds(300));
  const Status status = (*liveness)->check();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().rank, 3);
  EXPECT_NE(status.error().message.find("limit silence_seconds = 0.3"), std::string::npos)
      << status.error().describe();
}

}  // namespace
}  // namespace headrace
