#include "kernel/copy.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "kernel/support.h"

namespace headrace {
namespace {

using testing::GuardedBytes;

void expect_copies(Isa isa, std::size_t bytes, std::size_t to_offset, std::size_t from_offset) {
  GuardedBytes destination(bytes, to_offset);
  GuardedBytes source(bytes, from_offset);
  std::mt19937 random(static_cast<std::uint32_t>(bytes + to_offset));
  for (std::size_t i = 0; i < bytes; ++i) {
    source.data()[i] = static_cast<std::byte>(random());
  }

  copy_streaming(destination.data(), source.data(), bytes, isa);

  ASSERT_TRUE(std::equal(source.data(), source.data() + bytes, destination.data()))
      << to_string(isa) << " bytes " << bytes << " offsets " << to_offset << ", " << from_offset;
  ASSERT_TRUE(destination.guards_intact()) << to_string(isa) << " bytes " << bytes;
  ASSERT_TRUE(source.guards_intact());
}

TEST(CopyTest, copies_small_ranges_at_any_address) {
  for (const Isa isa : testing::available_isas()) {
    for (const std::size_t bytes : testing::awkward_counts()) {
      for (const int offset : testing::k_offsets) {
        expect_copies(isa, bytes, static_cast<std::size_t>(offset), 0);
        expect_copies(isa, bytes, 7, static_cast<std::size_t>(offset));
      }
    }
  }
}

TEST(CopyTest, copies_ranges_about_the_streaming_threshold_at_any_address) {
  for (const Isa isa : testing::available_isas()) {
    for (const std::size_t past : {0U, 1U, 63U, 64U, 255U, 256U, 257U}) {
      for (const int offset : testing::k_offsets) {
        expect_copies(isa, k_streaming_threshold + past, static_cast<std::size_t>(offset), 3);
      }
    }
    expect_copies(isa, k_streaming_threshold - 1, 1, 0);
    expect_copies(isa, 9 * k_streaming_threshold + 11, 62, 31);
  }
}

TEST(CopyTest, a_release_store_publishes_the_bytes) {
  constexpr std::size_t k_bytes = 2 * k_streaming_threshold + 5;
  constexpr int k_rounds = 50;
  for (const Isa isa : testing::available_isas()) {
    GuardedBytes source(k_bytes, 0);
    GuardedBytes shared(k_bytes, 1);
    std::atomic<int> published{0};
    std::atomic<int> read{0};
    int stale = 0;
    std::thread reader([&] {
      for (int round = 1; round <= k_rounds; ++round) {
        while (published.load(std::memory_order_acquire) < round) {
          std::this_thread::yield();
        }
        // The end was written last, so it is what a missing order would show stale.
        const auto expected = static_cast<std::byte>(round);
        stale += shared.data()[k_bytes - 70] != expected;
        stale += shared.data()[k_bytes - 1] != expected;
        stale += shared.data()[0] != expected;
        read.store(round, std::memory_order_release);
      }
    });
    for (int round = 1; round <= k_rounds; ++round) {
      std::fill(source.data(), source.data() + k_bytes, static_cast<std::byte>(round));
      copy_streaming(shared.data(), source.data(), k_bytes, isa);
      published.store(round, std::memory_order_release);
      while (read.load(std::memory_order_acquire) < round) {
        std::this_thread::yield();
      }
    }
    reader.join();
    EXPECT_EQ(stale, 0) << to_string(isa);
  }
}

}  // namespace
}  // namespace headrace
