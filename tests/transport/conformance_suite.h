#pragma once

// What every transport must do. A backend joins by instantiating the two suites.

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "support/peer_group.h"
#include "support/rendezvous.h"
#include "transport/meet.h"

namespace headrace::testing {

// Offsets in a test's symmetric memory; the first page is the liveness page.
inline constexpr std::size_t k_signals = 4096;
inline constexpr std::size_t k_locks = 8192;
inline constexpr std::size_t k_data = 12288;
inline constexpr std::size_t k_mailbox_bytes = 1024;

/// Beyond its own limit, for a wait to end.
inline constexpr Milliseconds k_grace{20'000};

inline std::size_t signal_from(int rank) { return k_signals + static_cast<std::size_t>(rank) * 16; }
inline std::size_t mailbox_of(int rank) {
  return k_data + static_cast<std::size_t>(rank) * k_mailbox_bytes;
}

/// A rank at work: its transport, memory of the transport's kind, and the stream that carries it.
struct Seat {
  const Rank& self;
  Transport& transport;
  DataMemory& memory;
  Stream& stream;

  int rank() const { return self.rank; }
  int world_size() const { return self.world_size; }
  Channel& channel(int peer) const { return transport.channel(peer); }

  /// The status of an operation, and of the stream once it has passed.
  Status done(const Status& enqueued) const {
    HEADRACE_TRY(enqueued);
    HEADRACE_TRY_ASSIGN(Event event, stream.record());
    return event.wait(Deadline(self.config.wait.no_progress + k_grace));
  }
  /// Every rank has come to this round, and what each put or added before is there.
  void meet(std::uint64_t round) const {
    const Status status = done(
        headrace::meet(transport, stream, self.rank, self.world_size, k_signals, round, "meeting"));
    ASSERT_TRUE(status) << status.error().describe();
  }
  /// Of this rank's symmetric memory.
  template <class T>
  std::vector<T> here(std::size_t offset, std::size_t count) const {
    return memory.values<T>(transport.at(offset), count);
  }
  template <class T>
  void write_here(std::size_t offset, const std::vector<T>& values) const {
    memory.write(transport.at(offset), values.data(), values.size() * sizeof(T));
  }
};

using Body = std::function<void(const Seat&)>;

/// A rank whose body is done leaves: peers that are not done yet must not take its end for a death.
inline void run(PeerGroup group, const Body& body) {
  group.control_bytes = k_data;
  run_ranks(group, [&body](const Rank& self) {
    auto transport = self.transport();
    ASSERT_TRUE(transport) << transport.error().describe();
    const auto memory = self.memory();
    // A stream of the transport tells what has gone wrong; on the host an operation does.
    std::unique_ptr<Stream> stream = std::make_unique<InlineStream>();
    if ((*transport)->capability().device_memory) {
      stream = (*transport)->make_stream().value();
    }
    body({.self = self, .transport = **transport, .memory = *memory, .stream = *stream});
    (*transport)->liveness().leave();
  });
}

/// The parameter says what the group's ranks are, and how many.
class Conformance : public ::testing::TestWithParam<PeerGroup> {
 protected:
  void SetUp() override { skip_unless_runnable(GetParam()); }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Conformance);

TEST_P(Conformance, memory_starts_as_zeros) {
  run(GetParam(), [](const Seat& seat) {
    const std::byte* control = seat.transport.at(0);
    for (std::size_t i = 4096; i < k_data; ++i) {
      ASSERT_EQ(control[i], std::byte{0}) << "at byte " << i;
    }
    const auto data = seat.here<std::byte>(k_data, seat.self.config.memory_bytes - k_data);
    for (std::size_t i = 0; i < data.size(); ++i) {
      ASSERT_EQ(data[i], std::byte{0}) << "at byte " << k_data + i;
    }
  });
}

TEST_P(Conformance, what_is_put_before_a_signal_is_there_when_the_signal_is_seen) {
  run(GetParam(), [](const Seat& seat) {
    std::vector<int> words(k_mailbox_bytes / sizeof(int));
    std::byte* local = seat.memory.allocate(k_mailbox_bytes);
    for (std::uint64_t round = 1; round <= 50; ++round) {
      std::iota(words.begin(), words.end(), seat.rank() * 1000 + static_cast<int>(round));
      seat.memory.write(local, words.data(), k_mailbox_bytes);
      for (int peer = 0; peer < seat.world_size(); ++peer) {
        const Piece piece{
            .remote_offset = mailbox_of(seat.rank()), .local = local, .bytes = k_mailbox_bytes};
        ASSERT_TRUE(seat.channel(peer).put(seat.stream, {&piece, 1}));
      }
      seat.meet(2 * round - 1);
      for (int peer = 0; peer < seat.world_size(); ++peer) {
        EXPECT_EQ(seat.here<int>(mailbox_of(peer), 1)[0], peer * 1000 + static_cast<int>(round));
      }
      seat.meet(2 * round);  // all have read: the next round may overwrite
    }
  });
}

TEST_P(Conformance, control_memory_takes_records_of_the_host) {
  run(GetParam(), [](const Seat& seat) {
    InlineStream control;
    const std::size_t slot = k_locks + static_cast<std::size_t>(seat.rank()) * 64;
    const std::uint64_t record = 77 + static_cast<std::uint64_t>(seat.rank());
    std::uint64_t copy = record;
    for (int peer = 0; peer < seat.world_size(); ++peer) {
      const Piece piece{.remote_offset = slot, .local = &copy, .bytes = sizeof copy};
      ASSERT_TRUE(seat.channel(peer).put(control, {&piece, 1}));
      ASSERT_TRUE(seat.channel(peer).signal(control, signal_from(seat.rank()), 1));
    }
    for (int peer = 0; peer < seat.world_size(); ++peer) {
      ASSERT_TRUE(seat.channel(peer).wait(control, signal_from(peer), 1, "record"));
      std::uint64_t theirs = 0;
      std::memcpy(&theirs, seat.transport.at(k_locks + static_cast<std::size_t>(peer) * 64),
                  sizeof theirs);
      EXPECT_EQ(theirs, 77 + static_cast<std::uint64_t>(peer));
    }
  });
}

TEST_P(Conformance, get_reads_odd_sizes_at_odd_addresses) {
  run(GetParam(), [](const Seat& seat) {
    const auto byte_of = [](int rank, std::size_t i) {
      return static_cast<std::byte>(i * 7 + static_cast<std::size_t>(rank));
    };
    std::vector<std::byte> mine(777);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      mine[i] = byte_of(seat.rank(), i);
    }
    seat.write_here(k_data, mine);
    seat.meet(1);
    const std::vector<std::byte> poison(900, std::byte{0xee});
    std::byte* landing = seat.memory.allocate(poison.size());
    for (int peer = 0; peer < seat.world_size(); ++peer) {
      seat.memory.write(landing, poison.data(), poison.size());
      const std::vector<Piece> pieces{
          {.remote_offset = k_data + 1, .local = landing + 3, .bytes = 500},
          {.remote_offset = k_data + 600, .local = landing + 700, .bytes = 177},
          {.remote_offset = k_data, .local = landing, .bytes = 0}};
      ASSERT_TRUE(seat.done(seat.channel(peer).get(seat.stream, pieces)));
      const auto got = seat.memory.values<std::byte>(landing, poison.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        const std::byte wanted = i >= 3 && i < 503     ? byte_of(peer, i - 3 + 1)
                                 : i >= 700 && i < 877 ? byte_of(peer, i - 700 + 600)
                                                       : std::byte{0xee};
        ASSERT_EQ(got[i], wanted) << "byte " << i << " from rank " << peer;
      }
    }
    seat.meet(2);
  });
}

TEST_P(Conformance, accumulate_adds_each_contribution_once_whoever_adds_at_the_same_time) {
  run(GetParam(), [](const Seat& seat) {
    constexpr std::size_t count = 5000;
    constexpr int repeats = 20;
    const AccumulatorRegion region{
        .offset = k_data, .bytes = count * 4, .locks_offset = k_locks, .chunk_bytes = 256};
    std::vector<float> first(1000);
    std::vector<float> second(3500);
    std::iota(first.begin(), first.end(), 1.0F);
    std::iota(second.begin(), second.end(), 5.0F);
    const std::vector<Addend> addends{{.remote_offset = k_data + 4,
                                       .local = seat.memory.copy_of(first),
                                       .dtype = DType::float32,
                                       .count = first.size()},
                                      {.remote_offset = k_data + 4 * 1400,
                                       .local = seat.memory.copy_of(second),
                                       .dtype = DType::float32,
                                       .count = second.size()}};
    for (int repeat = 0; repeat < repeats; ++repeat) {
      for (int peer = 0; peer < seat.world_size(); ++peer) {
        ASSERT_TRUE(seat.channel(peer).accumulate(seat.stream, region, addends));
      }
    }
    seat.meet(1);
    const auto sums = seat.here<float>(k_data, count);
    const float factor = static_cast<float>(seat.world_size() * repeats);
    EXPECT_EQ(sums[0], 0.0F);
    for (std::size_t i = 0; i < first.size(); ++i) {
      ASSERT_EQ(sums[1 + i], first[i] * factor) << "element " << i;
    }
    EXPECT_EQ(sums[1001], 0.0F);
    for (std::size_t i = 0; i < second.size(); ++i) {
      ASSERT_EQ(sums[1400 + i], second[i] * factor) << "element " << i;
    }
    seat.meet(2);
  });
}

TEST_P(Conformance, accumulate_into_a_region_of_ones_own_adds_once_and_needs_no_lock) {
  run(GetParam(), [](const Seat& seat) {
    constexpr std::size_t count = 300;
    // Each source's region lies behind the one before; what a lock would be is not zero.
    const AccumulatorRegion region{
        .offset = k_data + static_cast<std::size_t>(seat.rank()) * count * 4,
        .bytes = count * 4,
        .locks_offset = k_locks,
        .chunk_bytes = 256,
        .exclusive = true};
    std::memset(seat.transport.at(k_locks), 0xff, 256);
    seat.meet(1);
    std::vector<float> values(count - 1);
    std::iota(values.begin(), values.end(), static_cast<float>(seat.rank()));
    const Addend addend{.remote_offset = region.offset + 4,
                        .local = seat.memory.copy_of(values),
                        .dtype = DType::float32,
                        .count = values.size()};
    for (int repeat = 0; repeat < 3; ++repeat) {
      for (int peer = 0; peer < seat.world_size(); ++peer) {
        ASSERT_TRUE(seat.channel(peer).accumulate(seat.stream, region, {&addend, 1}));
      }
    }
    seat.meet(2);
    for (int source = 0; source < seat.world_size(); ++source) {
      const auto slot =
          seat.here<float>(k_data + static_cast<std::size_t>(source) * count * 4, count);
      EXPECT_EQ(slot[0], 0.0F);
      for (std::size_t i = 0; i + 1 < count; ++i) {
        ASSERT_EQ(slot[1 + i], 3.0F * static_cast<float>(source + static_cast<int>(i)))
            << "source " << source << " element " << i;
      }
    }
    seat.meet(3);
  });
}

TEST_P(Conformance, a_wait_for_a_rank_that_left_names_it) {
  if (GetParam().world_size == 1) {
    return;  // a rank alone has nobody to wait for
  }
  run(GetParam(), [](const Seat& seat) {
    if (seat.rank() == 1) {
      seat.transport.liveness().leave();
      return;
    }
    const Status status =
        seat.done(seat.channel(1).wait(seat.stream, signal_from(1), 1, "greeting"));
    ASSERT_FALSE(status);
    seat.transport.liveness().fail(
        status.error());  // so that who waits longer hears of rank 1, not of this rank's end
    EXPECT_EQ(status.error().rank, 1);
    EXPECT_NE(status.error().message.find("rank 1 left"), std::string::npos)
        << status.error().message;
    EXPECT_NE(status.error().message.find("greeting"), std::string::npos);
  });
}

TEST_P(Conformance, a_failure_reaches_every_rank_with_its_reason) {
  if (GetParam().world_size == 1) {
    return;
  }
  const Rendezvous all(GetParam().world_size);
  run(GetParam(), [&all](const Seat& seat) {
    if (seat.rank() == 1) {
      seat.transport.liveness().fail(session_error("out of memory in layer 3"));
      all.come(1);
      return;
    }
    const Status status =
        seat.done(seat.channel(1).wait(seat.stream, signal_from(1), 1, "greeting"));
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().rank, 1);
    EXPECT_NE(status.error().message.find("out of memory in layer 3"), std::string::npos);
    // And every operation after it says the same.
    EXPECT_FALSE(seat.channel(0).signal(seat.stream, signal_from(seat.rank()), 9));
    all.come(1);
  });
}

TEST_P(Conformance, a_wait_without_progress_ends_at_its_limit) {
  PeerGroup limited = GetParam();
  limited.wait.no_progress = Milliseconds(100);
  const Rendezvous all(limited.world_size);
  run(limited, [&all](const Seat& seat) {
    const int peer = (seat.rank() + 1) % seat.world_size();
    // In a circle from the start: a rank that comes late to its wait would be named for all others.
    seat.transport.liveness().show_wait(peer);
    all.come(1);
    const std::int64_t begin = now_ns();
    const Status status =
        seat.done(seat.channel(peer).wait(seat.stream, signal_from(peer), 1, "greeting"));
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("greeting"), std::string::npos);
    // The limit of a device's stream ends the session, of which a rank with a stream may hear
    // first.
    if (status.error().message.find("reported by") == std::string::npos) {
      EXPECT_EQ(status.error().rank, peer);
      EXPECT_GE(now_ns() - begin, 100'000'000);
    } else {
      EXPECT_TRUE(seat.transport.capability().device_memory) << status.error().describe();
    }
    all.come(2);  // nobody leaves while another still waits
  });
}

TEST_P(Conformance, differing_ranks_are_told_before_the_first_byte_moves) {
  if (GetParam().world_size == 1) {
    return;
  }
  run_ranks(GetParam(), [](const Rank& self) {
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

/// The parameter's ranks, as two nodes of two.
class RailConformance : public ::testing::TestWithParam<PeerGroup> {
 protected:
  void SetUp() override { skip_unless_runnable(GetParam()); }
  static void run(std::size_t memory_bytes, const Body& body) {
    PeerGroup group = GetParam();
    group.world_size = 4;
    group.local_ranks = 2;
    group.memory_bytes = memory_bytes;
    testing::run(group, body);
  }
};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RailConformance);

TEST_P(RailConformance, carries_large_puts_before_their_signals) {
  constexpr std::size_t k_bytes = 3 << 20;
  run(k_data + k_bytes, [](const Seat& seat) {
    Channel& rail = seat.channel((seat.rank() + 2) % 4);
    std::vector<std::uint8_t> sent(k_bytes - 5);
    std::byte* local = seat.memory.allocate(sent.size());
    for (std::uint64_t round = 1; round <= 5; ++round) {
      std::iota(sent.begin(), sent.end(),
                static_cast<std::uint8_t>(static_cast<std::uint64_t>(seat.rank()) + round));
      seat.memory.write(local, sent.data(), sent.size());
      const Piece piece{.remote_offset = k_data + 3, .local = local, .bytes = sent.size()};
      ASSERT_TRUE(rail.put(seat.stream, {&piece, 1}));
      ASSERT_TRUE(rail.signal(seat.stream, k_signals, 2 * round - 1));
      ASSERT_TRUE(seat.done(rail.wait(seat.stream, k_signals, 2 * round - 1, "data")));
      const auto here = seat.here<std::uint8_t>(k_data + 3, sent.size());
      const std::uint64_t first = static_cast<std::uint64_t>(rail.peer()) + round;
      for (std::size_t i = 0; i < sent.size(); i += 4099) {
        ASSERT_EQ(here[i], static_cast<std::uint8_t>(first + i)) << "byte " << i;
      }
      ASSERT_TRUE(rail.signal(seat.stream, k_signals, 2 * round));
      ASSERT_TRUE(seat.done(rail.wait(seat.stream, k_signals, 2 * round, "reader")));
    }
  });
}

TEST_P(RailConformance, offers_nothing_else_and_nothing_off_the_rail) {
  run(1 << 16, [](const Seat& seat) {
    const Piece piece{.remote_offset = k_data, .local = seat.memory.allocate(4), .bytes = 4};
    Channel& rail = seat.channel((seat.rank() + 2) % 4);
    EXPECT_EQ(rail.view(k_data), nullptr);
    EXPECT_EQ(rail.get(seat.stream, {&piece, 1}).error().scope, Scope::operation);
    EXPECT_EQ(rail.accumulate(seat.stream, {}, {}).error().scope, Scope::operation);
    Channel& none = seat.channel(3 - seat.rank());
    EXPECT_EQ(none.view(k_data), nullptr);
    for (const Status& status :
         {none.get(seat.stream, {&piece, 1}), none.put(seat.stream, {&piece, 1}),
          none.signal(seat.stream, k_signals, 1),
          none.wait(seat.stream, k_signals, 1, "nothing")}) {
      ASSERT_FALSE(status);
      EXPECT_NE(status.error().message.find("another rail"), std::string::npos);
    }
  });
}

TEST_P(RailConformance, a_failure_reaches_ranks_that_share_nothing_with_the_culprit) {
  const Rendezvous all(GetParam().world_size);
  run(1 << 16, [&all](const Seat& seat) {
    if (seat.rank() == 3) {
      seat.transport.liveness().fail(session_error("the disk is full"));
    }
    // Rank 0 has no channel to rank 3. Ranks 1 and 2 are busy elsewhere: their threads must tell.
    const Deadline deadline(k_grace);
    while (seat.transport.liveness().check() && !deadline.passed()) {
      std::this_thread::sleep_for(Milliseconds(5));
    }
    const Status status = seat.transport.liveness().check();
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("the disk is full"), std::string::npos);
    if (seat.rank() != 3) {
      EXPECT_EQ(status.error().rank, 3);
    }
    all.come(1);  // others still have to hear of it from here
  });
}

}  // namespace headrace::testing
