// A rank that fails between wiring and work: its peers, which have all they need of it, are told.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#include "support/peer_group.h"
#include "support/rendezvous.h"
#include "support/sanitizers.h"
#include "transport/shm/shm_transport.h"

namespace headrace::testing {
namespace {

constexpr int k_poor = 1;
constexpr std::size_t k_memory = std::size_t{64} << 20;

/// From here on this process can map little more than it has mapped.
void map_no_more() {
  constexpr std::size_t k_slack = k_memory / 2;
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const std::size_t bytes = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + k_slack;
  const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
}

TEST(Wiring, a_rank_that_cannot_map_a_peer_tells_all_before_their_silence) {
  if (k_thread_sanitized) {
    GTEST_SKIP() << "the thread sanitizer cannot follow forked processes";
  }
  OtherTransport other{
      .name = "poor", .make = {}, .memory = host_memory, .why_not = [] { return std::string(); }};
  other.make = [](const TransportConfig& config, const Exchange& exchange) {
    const Exchange then_poor = [&](const std::string& mine, Milliseconds limit) {
      auto all = exchange(mine, limit);
      if (config.identity.rank == k_poor) {
        map_no_more();
      }
      return all;
    };
    return make_shm_transport(config, then_poor);
  };
  PeerGroup group{.backend = Backend::shm_processes,
                  .other = std::make_shared<const OtherTransport>(other),
                  .world_size = 3,
                  .faults = {},
                  .expected_to_die = {},
                  .expected_to_stop = {},
                  .memory_bytes = k_memory,
                  .wait = {}};
  const Rendezvous all(group.world_size);
  run_ranks(group, [&all](const Rank& self) {
    const auto transport = self.transport();
    if (self.rank == k_poor) {
      ASSERT_FALSE(transport);
      all.come(1);  // alive, so that nothing but its page can tell
      return;
    }
    ASSERT_TRUE(transport) << transport.error().describe();
    const Deadline deadline(self.config.liveness.silence);
    Status status;
    while ((status = (*transport)->liveness().check()) && !deadline.passed()) {
      ::usleep(10'000);
    }
    ASSERT_FALSE(status) << "nobody told";
    EXPECT_EQ(status.error().rank, k_poor);
    EXPECT_NE(status.error().message.find("map"), std::string::npos) << status.error().message;
    all.come(1);
  });
}

}  // namespace
}  // namespace headrace::testing
