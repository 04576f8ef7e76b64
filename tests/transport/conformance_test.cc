// What every transport must do. A backend joins by being listed in tests/support/peer_group.

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "support/peer_group.h"
#include "transport/meet.h"

namespace headrace::testing {
namespace {

// Offsets in a test's symmetric memory; the first page is the liveness page.
constexpr std::size_t k_signals = 4096;
constexpr std::size_t k_locks = 8192;
constexpr std::size_t k_data = 12288;
constexpr std::size_t k_mailbox_bytes = 1024;

std::size_t signal_from(int rank) { return k_signals + static_cast<std::size_t>(rank) * 16; }
std::size_t mailbox_of(int rank) {
  return k_data + static_cast<std::size_t>(rank) * k_mailbox_bytes;
}

using Body = std::function<void(const Rank&, Transport&)>;

// A rank whose body is done leaves: peers that are not done yet must not take its end for a death.
void run(const PeerGroup& group, const Body& body) {
  run_ranks(group, [&body](const Rank& self) {
    auto transport = self.transport();
    ASSERT_TRUE(transport) << transport.error().describe();
    body(self, **transport);
    (*transport)->liveness().leave();
  });
}

class Conformance : public ::testing::TestWithParam<std::tuple<Backend, int>> {
 protected:
  PeerGroup group() const {
    return {.backend = std::get<0>(GetParam()), .world_size = std::get<1>(GetParam())};
  }
};

void meet(Transport& transport, Stream& stream, const Rank& self, std::uint64_t round) {
  const Status status =
      headrace::meet(transport, stream, self.rank, self.world_size, k_signals, round, "meeting");
  ASSERT_TRUE(status) << status.error().describe();
}

TEST_P(Conformance, memory_starts_as_zeros) {
  run(group(), [](const Rank& self, Transport& transport) {
    const std::byte* memory = transport.at(0);
    for (std::size_t i = 4096; i < self.config.memory_bytes; ++i) {
      ASSERT_EQ(memory[i], std::byte{0}) << "at byte " << i;
    }
  });
}

TEST_P(Conformance, what_is_put_before_a_signal_is_there_when_the_signal_is_seen) {
  run(group(), [](const Rank& self, Transport& transport) {
    InlineStream stream;
    std::vector<int> words(k_mailbox_bytes / sizeof(int));
    for (std::uint64_t round = 1; round <= 50; ++round) {
      std::iota(words.begin(), words.end(), self.rank * 1000 + static_cast<int>(round));
      for (int peer = 0; peer < self.world_size; ++peer) {
        const Piece piece{.remote_offset = mailbox_of(self.rank),
                          .local = words.data(),
                          .bytes = k_mailbox_bytes};
        ASSERT_TRUE(transport.channel(peer).put(stream, {&piece, 1}));
      }
      meet(transport, stream, self, 2 * round - 1);
      for (int peer = 0; peer < self.world_size; ++peer) {
        int first = 0;
        std::memcpy(&first, transport.at(mailbox_of(peer)), sizeof first);
        EXPECT_EQ(first, peer * 1000 + static_cast<int>(round));
      }
      meet(transport, stream, self, 2 * round);  // all have read: the next round may overwrite
    }
  });
}

TEST_P(Conformance, get_reads_odd_sizes_at_odd_addresses) {
  run(group(), [](const Rank& self, Transport& transport) {
    InlineStream stream;
    for (std::size_t i = 0; i < 777; ++i) {
      *transport.at(k_data + i) =
          static_cast<std::byte>(i * 7 + static_cast<std::size_t>(self.rank));
    }
    meet(transport, stream, self, 1);
    std::vector<std::byte> landing(900, std::byte{0xee});
    for (int peer = 0; peer < self.world_size; ++peer) {
      const std::vector<Piece> pieces{
          {.remote_offset = k_data + 1, .local = landing.data() + 3, .bytes = 500},
          {.remote_offset = k_data + 600, .local = landing.data() + 700, .bytes = 177},
          {.remote_offset = k_data, .local = landing.data(), .bytes = 0}};
      ASSERT_TRUE(transport.channel(peer).get(stream, pieces));
      EXPECT_EQ(landing[2], std::byte{0xee});
      EXPECT_EQ(landing[503], std::byte{0xee});
      EXPECT_EQ(landing[3 + 499], static_cast<std::byte>(500 * 7 + static_cast<std::size_t>(peer)));
      EXPECT_EQ(landing[700 + 176],
                static_cast<std::byte>(776 * 7 + static_cast<std::size_t>(peer)));
      EXPECT_EQ(landing[877], std::byte{0xee});
    }
    meet(transport, stream, self, 2);
  });
}

TEST_P(Conformance, accumulate_adds_each_contribution_once_whoever_adds_at_the_same_time) {
  run(group(), [](const Rank& self, Transport& transport) {
    InlineStream stream;
    constexpr std::size_t count = 5000;
    constexpr int repeats = 20;
    const AccumulatorRegion region{
        .offset = k_data, .bytes = count * 4, .locks_offset = k_locks, .chunk_bytes = 256};
    std::vector<float> first(1000);
    std::vector<float> second(3500);
    std::iota(first.begin(), first.end(), 1.0F);
    std::iota(second.begin(), second.end(), 5.0F);
    const std::vector<Addend> addends{{.remote_offset = k_data + 4,
                                       .local = first.data(),
                                       .dtype = DType::float32,
                                       .count = first.size()},
                                      {.remote_offset = k_data + 4 * 1400,
                                       .local = second.data(),
                                       .dtype = DType::float32,
                                       .count = second.size()}};
    for (int repeat = 0; repeat < repeats; ++repeat) {
      for (int peer = 0; peer < self.world_size; ++peer) {
        ASSERT_TRUE(transport.channel(peer).accumulate(stream, region, addends));
      }
    }
    meet(transport, stream, self, 1);
    const auto* sums = reinterpret_cast<const float*>(transport.at(k_data));
    const float factor = static_cast<float>(self.world_size * repeats);
    EXPECT_EQ(sums[0], 0.0F);
    for (std::size_t i = 0; i < first.size(); ++i) {
      ASSERT_EQ(sums[1 + i], first[i] * factor) << "element " << i;
    }
    EXPECT_EQ(sums[1001], 0.0F);
    for (std::size_t i = 0; i < second.size(); ++i) {
      ASSERT_EQ(sums[1400 + i], second[i] * factor) << "element " << i;
    }
    meet(transport, stream, self, 2);
  });
}

TEST_P(Conformance, accumulate_into_a_region_of_ones_own_adds_once_and_needs_no_lock) {
  run(group(), [](const Rank& self, Transport& transport) {
    InlineStream stream;
    constexpr std::size_t count = 300;
    // Each source's region lies behind the one before; what a lock would be is not zero.
    const AccumulatorRegion region{
        .offset = k_data + static_cast<std::size_t>(self.rank) * count * 4,
        .bytes = count * 4,
        .locks_offset = k_locks,
        .chunk_bytes = 256,
        .exclusive = true};
    std::memset(transport.at(k_locks), 0xff, 256);
    meet(transport, stream, self, 1);
    std::vector<float> values(count - 1);
    std::iota(values.begin(), values.end(), static_cast<float>(self.rank));
    const Addend addend{.remote_offset = region.offset + 4,
                        .local = values.data(),
                        .dtype = DType::float32,
                        .count = values.size()};
    for (int repeat = 0; repeat < 3; ++repeat) {
      for (int peer = 0; peer < self.world_size; ++peer) {
        ASSERT_TRUE(transport.channel(peer).accumulate(stream, region, {&addend, 1}));
      }
    }
    meet(transport, stream, self, 2);
    const auto* sums = reinterpret_cast<const float*>(transport.at(k_data));
    for (int source = 0; source < self.world_size; ++source) {
      const float* slot = sums + static_cast<std::size_t>(source) * count;
      EXPECT_EQ(slot[0], 0.0F);
      for (std::size_t i = 0; i + 1 < count; ++i) {
        ASSERT_EQ(slot[1 + i], 3.0F * static_cast<float>(source + static_cast<int>(i)))
            << "source " << source << " element " << i;
      }
    }
    meet(transport, stream, self, 3);
  });
}

TEST_P(Conformance, a_wait_for_a_rank_that_left_names_it) {
  if (std::get<1>(GetParam()) == 1) {
    return;  // a rank alone has nobody to wait for
  }
  run(group(), [](const Rank& self, Transport& transport) {
    InlineStream stream;
    if (self.rank == 1) {
      transport.liveness().leave();
      return;
    }
    const Status status = transport.channel(1).wait(stream, signal_from(1), 1, "greeting");
    ASSERT_FALSE(status);
    transport.liveness().fail(
        status.error());  // so that who waits longer hears of rank 1, not of this rank's end
    EXPECT_EQ(status.error().rank, 1);
    EXPECT_NE(status.error().message.find("rank 1 left"), std::string::npos)
        << status.error().message;
    EXPECT_NE(status.error().message.find("greeting"), std::string::npos);
  });
}

TEST_P(Conformance, a_failure_reaches_every_rank_with_its_reason) {
  if (std::get<1>(GetParam()) == 1) {
    return;
  }
  run(group(), [](const Rank& self, Transport& transport) {
    InlineStream stream;
    if (self.rank == 1) {
      transport.liveness().fail(session_error("out of memory in layer 3"));
      std::this_thread::sleep_for(Milliseconds(100));
      return;
    }
    const Status status = transport.channel(1).wait(stream, signal_from(1), 1, "greeting");
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().rank, 1);
    EXPECT_NE(status.error().message.find("out of memory in layer 3"), std::string::npos);
    // And every operation after it says the same.
    EXPECT_FALSE(transport.channel(0).signal(stream, signal_from(self.rank), 9));
  });
}

TEST_P(Conformance, a_wait_without_progress_ends_at_its_limit) {
  PeerGroup limited = group();
  limited.wait.no_progress = Milliseconds(100);
  run(limited, [](const Rank& self, Transport& transport) {
    InlineStream stream;
    const std::int64_t begin = now_ns();
    const int peer = (self.rank + 1) % self.world_size;
    const Status status = transport.channel(peer).wait(stream, signal_from(peer), 1, "greeting");
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().rank, peer);
    EXPECT_GE(now_ns() - begin, 100'000'000);
    EXPECT_NE(status.error().message.find("greeting"), std::string::npos);
    std::this_thread::sleep_for(Milliseconds(200));  // nobody leaves while another still waits
  });
}

TEST_P(Conformance, differing_ranks_are_told_before_the_first_byte_moves) {
  if (std::get<1>(GetParam()) == 1) {
    return;
  }
  run_ranks(group(), [](const Rank& self) {
    TransportConfig config = self.config;
    config.identity.model = self.rank == 0 ? 1 : 2;
    config.identity.model_text = self.rank == 0 ? "small" : "large";
    const auto transport = self.make(config);
    // Ranks above 0 agree with each other, and differ from rank 0.
    ASSERT_FALSE(transport);
    EXPECT_EQ(transport.error().rank, self.rank == 0 ? 1 : 0);
    EXPECT_NE(transport.error().message.find("small"), std::string::npos);
    EXPECT_NE(transport.error().message.find("large"), std::string::npos);
  });
}

class RailConformance : public ::testing::TestWithParam<Backend> {
 protected:
  // Two nodes of two ranks.
  static void run(PeerGroup group, const Body& body) {
    group.backend = GetParam();
    group.world_size = 4;
    group.local_ranks = 2;
    testing::run(group, body);
  }
};

TEST_P(RailConformance, carries_large_puts_before_their_signals) {
  constexpr std::size_t k_bytes = 3 << 20;
  run({.memory_bytes = k_data + k_bytes}, [](const Rank& self, Transport& transport) {
    InlineStream stream;
    Channel& rail = transport.channel((self.rank + 2) % 4);
    std::vector<std::uint8_t> sent(k_bytes - 5);
    for (std::uint64_t round = 1; round <= 5; ++round) {
      std::iota(sent.begin(), sent.end(),
                static_cast<std::uint8_t>(static_cast<std::uint64_t>(self.rank) + round));
      const Piece piece{.remote_offset = k_data + 3, .local = sent.data(), .bytes = sent.size()};
      ASSERT_TRUE(rail.put(stream, {&piece, 1}));
      ASSERT_TRUE(rail.signal(stream, k_signals, 2 * round - 1));
      ASSERT_TRUE(rail.wait(stream, k_signals, 2 * round - 1, "data"));
      const auto* here = reinterpret_cast<const std::uint8_t*>(transport.at(k_data + 3));
      const std::uint64_t first = static_cast<std::uint64_t>(rail.peer()) + round;
      for (std::size_t i = 0; i < sent.size(); i += 4099) {
        ASSERT_EQ(here[i], static_cast<std::uint8_t>(first + i)) << "byte " << i;
      }
      ASSERT_TRUE(rail.signal(stream, k_signals, 2 * round));
      ASSERT_TRUE(rail.wait(stream, k_signals, 2 * round, "reader"));
    }
  });
}

TEST_P(RailConformance, offers_nothing_else_and_nothing_off_the_rail) {
  run({}, [](const Rank& self, Transport& transport) {
    InlineStream stream;
    int word = 0;
    const Piece piece{.remote_offset = k_data, .local = &word, .bytes = sizeof word};
    Channel& rail = transport.channel((self.rank + 2) % 4);
    EXPECT_EQ(rail.view(k_data), nullptr);
    EXPECT_EQ(rail.get(stream, {&piece, 1}).error().scope, Scope::operation);
    EXPECT_EQ(rail.accumulate(stream, {}, {}).error().scope, Scope::operation);
    Channel& none = transport.channel(3 - self.rank);
    EXPECT_EQ(none.view(k_data), nullptr);
    for (const Status& status :
         {none.get(stream, {&piece, 1}), none.put(stream, {&piece, 1}),
          none.signal(stream, k_signals, 1), none.wait(stream, k_signals, 1, "nothing")}) {
      ASSERT_FALSE(status);
      EXPECT_NE(status.error().message.find("another rail"), std::string::npos);
    }
  });
}

TEST_P(RailConformance, a_failure_reaches_ranks_that_share_nothing_with_the_culprit) {
  run({}, [](const Rank& self, Transport& transport) {
    if (self.rank == 3) {
      transport.liveness().fail(session_error("the disk is full"));
    }
    // Rank 0 has no channel to rank 3. Ranks 1 and 2 are busy elsewhere: their threads must tell.
    const Deadline deadline(Milliseconds(5000));
    while (transport.liveness().check() && !deadline.passed()) {
      std::this_thread::sleep_for(Milliseconds(5));
    }
    const Status status = transport.liveness().check();
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("the disk is full"), std::string::npos);
    if (self.rank != 3) {
      EXPECT_EQ(status.error().rank, 3);
    }
    std::this_thread::sleep_for(Milliseconds(200));  // others still have to hear of it from here
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, RailConformance, ::testing::ValuesIn(backends()));

INSTANTIATE_TEST_SUITE_P(All, Conformance,
                         ::testing::Combine(::testing::ValuesIn(backends()),
                                            ::testing::Values(1, 2, 3, 4)));

}  // namespace
}  // namespace headrace::testing
