#include "shm_checks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "base/fd.h"

namespace headrace::cli {
namespace {

constexpr std::size_t k_probe_bytes = 4096;
constexpr std::size_t k_huge_page_bytes = std::size_t{2} << 20;
constexpr int k_poll_milliseconds = 2000;

Check failed(std::string name, const char* call, const char* advice) {
  return {std::move(name), false, fmt::format("{}: {}; {}", call, std::strerror(errno), advice)};
}

/// Shared memory mapped once; unmapped at the end.
class Mapping {
 public:
  Mapping(int fd, std::size_t bytes)
      : bytes_(bytes), at_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) {}
  ~Mapping() {
    if (valid()) {
      munmap(at_, bytes_);
    }
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  bool valid() const { return at_ != MAP_FAILED; }
  std::uint32_t* words() const { return static_cast<std::uint32_t*>(at_); }

 private:
  std::size_t bytes_;
  void* at_;
};

Check check_memfd() {
  const Fd memory(memfd_create("headrace-info", MFD_CLOEXEC));
  if (!memory.valid()) {
    return failed("memfd", "memfd_create", "the kernel must be 3.17 or newer");
  }
  if (ftruncate(memory.get(), k_probe_bytes) != 0) {
    return failed("memfd", "ftruncate", "is there memory left in this control group?");
  }
  const Mapping writer(memory.get(), k_probe_bytes);
  const Mapping reader(memory.get(), k_probe_bytes);
  if (!writer.valid() || !reader.valid()) {
    return failed("memfd", "mmap", "is the address space limited (ulimit -v)?");
  }
  if (reader.words()[0] != 0) {
    return {"memfd", false, "new memory was not zero"};
  }
  writer.words()[0] = 1;
  if (reader.words()[0] != 1) {
    return {"memfd", false, "a write was not seen through a second mapping"};
  }
  return {"memfd", true, "private shared memory, zeroed, seen through a second mapping"};
}

Check check_unix_socket() {
  std::array<int, 2> ends = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return failed("unix socket", "socketpair", "the sandbox must allow AF_UNIX");
  }
  const Fd sender(ends[0]);
  const Fd receiver(ends[1]);
  const Fd sent(memfd_create("headrace-info", MFD_CLOEXEC));
  const int sent_fd = sent.get();

  char byte = 'h';
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &sent_fd, sizeof(int));
  if (sendmsg(sender.get(), &message, MSG_NOSIGNAL) != 1) {
    return failed("unix socket", "sendmsg with a descriptor", "the sandbox must allow SCM_RIGHTS");
  }
  message.msg_controllen = control.size();
  if (recvmsg(receiver.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != 1) {
    return failed("unix socket", "recvmsg with a descriptor", "the sandbox must allow SCM_RIGHTS");
  }
  header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) {
    return {"unix socket", false, "a descriptor sent over it did not arrive"};
  }
  int received_fd = -1;
  std::memcpy(&received_fd, CMSG_DATA(header), sizeof(int));
  const Fd received(received_fd);

  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(receiver.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
      peer.uid != geteuid()) {
    return {"unix socket", false,
            "the peer's user cannot be told, so memory could not be kept private"};
  }
  return {"unix socket", true, "passes descriptors and names the peer's process and user"};
}

Check check_futex() {
  const Fd memory(memfd_create("headrace-info", MFD_CLOEXEC));
  if (!memory.valid() || ftruncate(memory.get(), k_probe_bytes) != 0) {
    return failed("futex", "memfd_create", "see memfd");
  }
  const Mapping waiter(memory.get(), k_probe_bytes);
  if (!waiter.valid()) {
    return failed("futex", "mmap", "see memfd");
  }
  // A word that holds 0 where 1 was expected: a working futex answers at once, with EAGAIN.
  timespec limit{1, 0};
  const long answer = syscall(SYS_futex, waiter.words(), FUTEX_WAIT, 1, &limit, nullptr, 0);
  if (answer != -1 || errno != EAGAIN) {
    return failed("futex", "FUTEX_WAIT", "waits would have to spin");
  }
  return {"futex", true, "waits on shared memory without spinning"};
}

Check check_pidfd() {
  const pid_t child = fork();
  if (child == 0) {
    _exit(0);
  }
  if (child < 0) {
    return failed("pidfd", "fork", "is the number of processes limited (ulimit -u)?");
  }
  const Fd handle(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
  const int open_error = errno;
  pollfd ended{handle.get(), POLLIN, 0};
  const bool seen = handle.valid() && poll(&ended, 1, k_poll_milliseconds) == 1;
  waitpid(child, nullptr, 0);
  if (!handle.valid()) {
    errno = open_error;
    return failed("pidfd", "pidfd_open", "the kernel must be 5.3 or newer");
  }
  if (!seen) {
    return {"pidfd", false, "the end of a child was not reported"};
  }
  return {"pidfd", true, "reports a peer's death at once"};
}

Check check_reserved_pages() {
  const Fd memory(memfd_create("headrace-info", MFD_CLOEXEC | MFD_HUGETLB));
  if (!memory.valid() || ftruncate(memory.get(), k_huge_page_bytes) != 0) {
    return failed("reserved", "memfd_create(MFD_HUGETLB)", "the kernel has no huge pages");
  }
  const Mapping page(memory.get(), k_huge_page_bytes);
  if (!page.valid()) {
    return failed("reserved", "mmap", "none is reserved (sysctl vm.nr_hugepages)");
  }
  return {"reserved", true, "a 2 MiB page could be mapped"};
}

/// A setting such as "always [madvise] never": the chosen word.
Check transparent(std::string name, const std::string& file) {
  std::ifstream stream("/sys/kernel/mm/transparent_hugepage/" + file);
  std::string line;
  std::getline(stream, line);
  const auto begin = line.find('[');
  const auto end = line.find(']');
  if (begin == std::string::npos || end == std::string::npos) {
    return {std::move(name), false, "the kernel does not say"};
  }
  std::string chosen = line.substr(begin + 1, end - begin - 1);
  const bool off = chosen == "never" || chosen == "deny";
  return {std::move(name), !off, "set to '" + std::move(chosen) + "'"};
}

}  // namespace

std::vector<Check> check_shm() {
  Check pidfd = check_pidfd();
  pidfd.needed = false;
  if (!pidfd.ok) {
    pidfd.detail += "; a peer's death is then told by its socket, which its own children keep open";
  }
  return {check_memfd(), check_unix_socket(), check_futex(), std::move(pidfd)};
}

std::vector<Check> check_huge_pages() {
  return {check_reserved_pages(), transparent("private", "enabled"),
          transparent("shared", "shmem_enabled")};
}

}  // namespace headrace::cli
