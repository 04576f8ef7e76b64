#include "base/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

namespace headrace {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(FdTest, closes_once_wherever_it_was_moved) {
  const int number = ::open("/dev/null", O_RDONLY);
  {
    Fd first(number);
    Fd second(std::move(first));
    EXPECT_TRUE(is_open(number));
    EXPECT_FALSE(first.valid());  // NOLINT: reads what was moved from on purpose
  }
  EXPECT_FALSE(is_open(number));
}

TEST(FdTest, a_forked_child_has_it_closed) {
  const Fd fd(::open("/dev/null", O_RDONLY));
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(is_open(fd.get()) ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(is_open(fd.get()));
}

}  // namespace
}  // namespace headrace
