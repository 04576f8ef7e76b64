#include "runtime/arena.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace headrace {
namespace {

TEST(ArenaTest, shared_memory_is_zeroed_sealed_and_closed_to_other_users) {
  auto memory = SharedMemory::create("headrace-test", 1 << 20);
  ASSERT_TRUE(memory) << memory.error().describe();
  const std::byte* data = memory->arena->data();
  EXPECT_TRUE(std::all_of(data, data + (1 << 20), [](std::byte b) { return b == std::byte{0}; }));
  struct stat status{};
  ASSERT_EQ(::fstat(memory->fd.get(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  EXPECT_EQ(status.st_size, 1 << 20);
  EXPECT_NE(::ftruncate(memory->fd.get(), 4096), 0)
      << "a peer that shrinks it would kill its readers";
  EXPECT_NE(::fcntl(memory->fd.get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(ArenaTest, two_mappings_show_the_same_memory) {
  auto memory = SharedMemory::create("headrace-test", 8192);
  ASSERT_TRUE(memory) << memory.error().describe();
  auto view = Arena::map(memory->fd, 8192);
  ASSERT_TRUE(view) << view.error().describe();
  memory->arena->data()[5000] = std::byte{42};
  EXPECT_EQ(view->data()[5000], std::byte{42});
}

TEST(ArenaTest, memory_that_the_machine_does_not_have_is_an_error_and_not_a_crash) {
  const auto physical = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
                        static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (const std::size_t bytes : {physical + (std::size_t{1} << 30), std::size_t{1} << 50}) {
    const auto memory = SharedMemory::create("headrace-test", bytes);
    ASSERT_FALSE(memory);
    EXPECT_NE(memory.error().message.find(std::to_string(bytes)), std::string::npos)
        << memory.error().describe();
  }
}

TEST(ArenaTest, a_mapping_larger_than_the_memory_is_refused) {
  auto memory = SharedMemory::create("headrace-test", 4096);
  ASSERT_TRUE(memory) << memory.error().describe();
  EXPECT_FALSE(Arena::map(memory->fd, 8192));
}

}  // namespace
}  // namespace headrace
