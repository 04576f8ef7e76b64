// Places that are nowhere, and more pieces or bytes than usual: what is wrong is refused before the
// device sees it, since that would lose all that its process has on it.

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "support/cuda/device_world.h"
#include "transport/meet.h"

namespace headrace::testing {
namespace {

void expect_refused(const Status& status, std::initializer_list<std::string> words) {
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().scope, Scope::operation) << status.error().describe();
  for (const std::string& word : words) {
    EXPECT_NE(status.error().message.find(word), std::string::npos)
        << word << ": " << status.error().message;
  }
}

void leave_together(Transport& transport, Stream& stream, const Rank& self) {
  EXPECT_TRUE(meet(transport, stream, self.rank, self.world_size, k_device_signals, 1, "the end"));
  const Status status = passed(stream);
  EXPECT_TRUE(status) << status.error().describe();
  transport.liveness().leave();
}

class DevicePlaces : public DeviceWorldTest {};

TEST_P(DevicePlaces, wrong_ones_are_refused_by_name_and_the_device_still_works) {
  run_ranks(device_world(GetParam()), [](const Rank& self) {
    const auto transport = self.transport().value();
    const auto stream = transport->make_stream().value();
    const auto memory = self.memory();
    InlineStream host;
    std::byte* local = memory->allocate(1 << 16);
    std::vector<std::byte> local_host(64);
    const std::size_t end = self.config.memory_bytes;
    Channel& channel = transport->channel((self.rank + 1) % self.world_size);
    const auto piece = [local](std::size_t offset, std::size_t bytes) {
      return Piece{.remote_offset = offset, .local = local, .bytes = bytes};
    };
    for (const auto& [offset, bytes] : {std::pair<std::size_t, std::size_t>{0, 8},
                                        {k_device_control - 4, 8},
                                        {end - 4, 8},
                                        {end, 1},
                                        {end + (std::size_t{1} << 40), 1},
                                        {SIZE_MAX - 3, 8},
                                        {k_device_control, SIZE_MAX - 8}}) {
      const Piece wrong = piece(offset, bytes);
      const std::string named = "offset " + std::to_string(offset);
      expect_refused(channel.put(*stream, {&wrong, 1}), {named, "device memory"});
      expect_refused(channel.get(*stream, {&wrong, 1}), {named, "device memory"});
      const Addend addend{.remote_offset = offset, .local = local, .count = bytes / 4 + 1};
      expect_refused(channel.accumulate(*stream, {}, {&addend, 1}), {named});
    }
    const Addend endless{.remote_offset = k_device_control, .local = local, .count = SIZE_MAX / 2};
    expect_refused(channel.accumulate(*stream, {}, {&endless, 1}), {"device memory"});
    const Piece beyond{
        .remote_offset = k_device_control - 8, .local = local_host.data(), .bytes = 16};
    expect_refused(channel.put(host, {&beyond, 1}), {"host", std::to_string(k_device_control)});
    expect_refused(channel.get(host, {&beyond, 1}), {"host", std::to_string(k_device_control)});
    for (const std::size_t offset : {k_device_control, k_device_control - 8, std::size_t{4100}}) {
      for (Stream* each : {stream.get(), static_cast<Stream*>(&host)}) {
        expect_refused(channel.signal(*each, offset, 1), {std::to_string(offset)});
        expect_refused(channel.wait(*each, offset, 1, "nothing"), {std::to_string(offset)});
      }
    }
    const Piece nothing = piece(0, 0);
    EXPECT_TRUE(channel.put(*stream, {&nothing, 1}));
    EXPECT_TRUE(channel.get(*stream, {}));
    EXPECT_TRUE(channel.accumulate(*stream, {}, {}));
    const Piece last = piece(end - 4, 4);
    EXPECT_TRUE(channel.get(*stream, {&last, 1}));
    leave_together(*transport, *stream, self);
    expect_device_works();
  });
}

TEST_P(DevicePlaces, more_streams_than_asked_for_are_refused) {
  run_ranks(device_world(GetParam()), [](const Rank& self) {
    const auto transport = self.transport().value();
    const auto first = transport->make_stream().value();
    const auto second = transport->make_stream().value();
    const auto third = transport->make_stream();
    ASSERT_FALSE(third);
    EXPECT_NE(third.error().message.find("CudaOptions::streams"), std::string::npos);
    leave_together(*transport, *first, self);
  });
}

TEST_P(DevicePlaces, a_world_without_device_memory_still_signals) {
  PeerGroup group = device_world(GetParam());
  group.memory_bytes = k_device_control;
  run_ranks(group, [](const Rank& self) {
    const auto transport = self.transport().value();
    const auto stream = transport->make_stream().value();
    std::byte byte{};
    const Piece piece{.remote_offset = k_device_control, .local = &byte, .bytes = 1};
    expect_refused(transport->channel(self.rank).get(*stream, {&piece, 1}), {"offset"});
    EXPECT_EQ(transport->at(k_device_control), nullptr);
    leave_together(*transport, *stream, self);
  });
}

// By copy engine and by kernel, forwards here and backwards there, so that nothing merges.
TEST_P(DevicePlaces, thousands_of_pieces_of_a_byte_or_none_arrive) {
  constexpr std::size_t k_pieces = 3'000;
  for (const CopyWay way : {CopyWay::copy_engine, CopyWay::kernel}) {
    CudaOptions options;
    options.copies.way = way;
    run_ranks(device_world(GetParam(), options), [](const Rank& self) {
      const auto transport = self.transport().value();
      const auto stream = transport->make_stream().value();
      const auto memory = self.memory();
      std::vector<std::byte> mine(2 * k_pieces);
      for (std::size_t i = 0; i < mine.size(); ++i) {
        mine[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(self.rank));
      }
      memory->write(transport->at(k_device_control), mine.data(), mine.size());
      ASSERT_TRUE(
          meet(*transport, *stream, self.rank, self.world_size, k_device_signals, 1, "data"));
      const int peer = (self.rank + 1) % self.world_size;
      std::byte* landing = memory->copy_of(std::vector<std::byte>(2 * k_pieces));
      std::vector<Piece> pieces;
      for (std::size_t i = 0; i < k_pieces; ++i) {
        pieces.push_back({.remote_offset = k_device_control + 2 * i,
                          .local = landing + 2 * (k_pieces - 1 - i),
                          .bytes = i % 3});
      }
      ASSERT_TRUE(transport->channel(peer).get(*stream, pieces));
      const Status status = passed(*stream);
      ASSERT_TRUE(status) << status.error().describe();
      const auto landed = memory->values<std::byte>(landing, 2 * k_pieces);
      for (std::size_t i = 0; i < k_pieces; ++i) {
        for (std::size_t b = 0; b < 2; ++b) {
          const auto wanted =
              b < i % 3 ? static_cast<std::byte>((2 * i + b) * 7 + static_cast<std::size_t>(peer))
                        : std::byte{0};
          ASSERT_EQ(landed[2 * (k_pieces - 1 - i) + b], wanted) << "piece " << i << " byte " << b;
        }
      }
      ASSERT_TRUE(
          meet(*transport, *stream, self.rank, self.world_size, k_device_signals, 2, "the end"));
      ASSERT_TRUE(passed(*stream));
      transport->liveness().leave();
    });
  }
}

// One block of more than 4 GiB, by both ways. Two ranks: 4 x 4 GiB of one device.
TEST_P(DevicePlaces, a_block_of_more_than_4_GiB_arrives_to_its_last_byte) {
  constexpr std::size_t k_block = (std::size_t{1} << 32) + 1027;
  if (GetParam() != 2 || std::getenv("HEADRACE_TEST_SMALL") != nullptr) {
    GTEST_SKIP() << "with two ranks, and no tool that slows them down";
  }
  for (const CopyWay way : {CopyWay::copy_engine, CopyWay::kernel}) {
    CudaOptions options;
    options.copies.way = way;
    PeerGroup group = device_world(2, options);
    group.memory_bytes = k_device_control + k_block;
    run_ranks(group, [](const Rank& self) {
      const auto made = self.transport();
      ASSERT_TRUE(made) << made.error().describe();
      const auto& transport = *made;
      const auto stream = transport->make_stream().value();
      const auto memory = self.memory();
      const std::vector<std::size_t> places = {0, (k_block >> 1) & ~std::size_t{63},
                                               (std::size_t{1} << 32) - 64, k_block - 64};
      for (const std::size_t place : places) {
        const std::vector<std::byte> mark(64, static_cast<std::byte>(place % 253 + 1));
        memory->write(transport->at(k_device_control + place), mark.data(), mark.size());
      }
      ASSERT_TRUE(meet(*transport, *stream, self.rank, 2, k_device_signals, 1, "data"));
      std::byte* landing = memory->allocate(k_block);
      const Piece piece{.remote_offset = k_device_control, .local = landing, .bytes = k_block};
      ASSERT_TRUE(transport->channel(1 - self.rank).get(*stream, {&piece, 1}));
      const Status status = passed(*stream);
      ASSERT_TRUE(status) << status.error().describe();
      for (const std::size_t place : places) {
        EXPECT_EQ(memory->values<std::byte>(landing + place, 64),
                  std::vector<std::byte>(64, static_cast<std::byte>(place % 253 + 1)))
            << "at " << place;
      }
      ASSERT_TRUE(meet(*transport, *stream, self.rank, 2, k_device_signals, 2, "the end"));
      ASSERT_TRUE(passed(*stream));
      transport->liveness().leave();
    });
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DevicePlaces);
INSTANTIATE_TEST_SUITE_P(Cuda, DevicePlaces, ::testing::ValuesIn(gpu_worlds_up_to(2)));

}  // namespace
}  // namespace headrace::testing
