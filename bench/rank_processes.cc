#include "bench/rank_processes.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "base/fd.h"

namespace headrace::bench {
namespace {

// First byte of what a rank writes: what follows.
constexpr char k_result = 'R';
constexpr char k_error = 'E';
constexpr char k_error_of_a_peer = 'P';

struct Child {
  pid_t pid = -1;
  Fd output;  ///< invalid once the rank has closed it
  std::string text;
  int end = 0;  ///< as waitpid gives it

  bool running() const { return pid >= 0; }
  bool succeeded() const {
    return WIFEXITED(end) && WEXITSTATUS(end) == 0 && text.starts_with(k_result);
  }
  bool failed_over_a_peer() const { return text.starts_with(k_error_of_a_peer); }
};

void pin_to_core(int rank) {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
    return;
  }
  int place = rank % CPU_COUNT(&allowed);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed) && place-- == 0) {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(core, &one);
      ::sched_setaffinity(0, sizeof one, &one);
      return;
    }
  }
}

bool write_all(int fd, const std::string& text) {
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t size = ::write(fd, text.data() + written, text.size() - written);
    if (size < 0 && errno != EINTR) {
      return false;
    }
    written += static_cast<std::size_t>(std::max<ssize_t>(size, 0));
  }
  return true;
}

[[noreturn]] void run_child(int rank, pid_t parent, Placement placement, int output,
                            const std::function<Result<std::string>(int)>& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) {  // it died before the line above
    ::_exit(1);
  }
  if (placement == Placement::pinned) {
    pin_to_core(rank);
  }
  const Result<std::string> result = body(rank);
  std::string text;
  if (result) {
    text = k_result + result.value();
  } else {
    const int culprit = result.error().rank;
    const bool own = culprit < 0 || culprit == rank;
    text = (own ? k_error : k_error_of_a_peer) + result.error().describe();
  }
  const bool written = write_all(output, text);
  std::fflush(nullptr);
  ::_exit(result && written ? 0 : 1);
}

std::string failure(int rank, const Child& child) {
  if (child.text.starts_with(k_error) || child.failed_over_a_peer()) {
    return fmt::format("rank {} failed: {}", rank, child.text.substr(1));
  }
  if (WIFSIGNALED(child.end)) {
    return fmt::format("rank {} was ended by signal {} ({})", rank, WTERMSIG(child.end),
                       ::strsignal(WTERMSIG(child.end)));
  }
  return fmt::format("rank {} failed", rank);
}

// All children of one run. None outlives it.
class Children {
 public:
  Children() = default;
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children() {
    for (Child& child : children_) {
      end(child);
    }
  }

  void add(pid_t pid, int output) {
    children_.push_back({.pid = pid, .output = Fd(output), .text = {}});
  }
  // A rank that has not ended, or -1.
  int first_running() const {
    const auto found = std::ranges::find_if(children_, [](const Child& c) { return c.running(); });
    return found == children_.end() ? -1 : static_cast<int>(found - children_.begin());
  }
  const Child& operator[](int rank) const { return children_[static_cast<std::size_t>(rank)]; }

  // Takes in what ranks write until one or more have ended, or the deadline passes; returns those.
  std::vector<int> take_in(Deadline deadline) {
    std::vector<pollfd> polled;
    for (const Child& child : children_) {
      polled.push_back({.fd = child.output.get(), .events = POLLIN, .revents = 0});
    }
    std::vector<int> ended;
    if (::poll(polled.data(), polled.size(), static_cast<int>(deadline.left().count())) <= 0) {
      return ended;
    }
    for (std::size_t rank = 0; rank < children_.size(); ++rank) {
      if (polled[rank].revents != 0 && !read_some(children_[rank])) {
        reap(children_[rank]);
        ended.push_back(static_cast<int>(rank));
      }
    }
    return ended;
  }

 private:
  static bool read_some(Child& child) {
    char buffer[65536];
    const ssize_t size = ::read(child.output.get(), buffer, sizeof buffer);
    if (size > 0) {
      child.text.append(buffer, static_cast<std::size_t>(size));
    }
    return size > 0 || (size < 0 && errno == EINTR);
  }
  static void reap(Child& child) {
    child.output.reset();
    ::waitpid(child.pid, &child.end, 0);
    child.pid = -1;
  }
  static void end(Child& child) {
    if (child.running()) {
      ::kill(child.pid, SIGKILL);
      reap(child);
    }
  }

  std::vector<Child> children_;
};

}  // namespace

Result<std::vector<std::string>> run_rank_processes(
    int ranks, Placement placement, ProcessLimits limits,
    const std::function<Result<std::string>(int rank)>& body) {
  Children children;
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    if (::pipe(ends) != 0) {
      return system_error(Scope::operation, "cannot make a pipe to a rank");
    }
    const pid_t pid = ::fork();
    if (pid < 0) {
      ::close(ends[0]);
      ::close(ends[1]);
      return system_error(Scope::operation, "cannot fork a rank");
    }
    if (pid == 0) {
      ::close(ends[0]);
      run_child(rank, parent, placement, ends[1], body);
    }
    ::close(ends[1]);
    children.add(pid, ends[0]);
  }
  Deadline deadline(limits.all);
  std::optional<std::string> first_failure;
  bool over_a_peer = false;  // whose end may be seen after that of the rank that met it
  while (children.first_running() >= 0) {
    const std::vector<int> ended = children.take_in(deadline);
    if (ended.empty() && deadline.passed()) {
      return operation_error(
          first_failure.value_or(fmt::format("rank {} was not done within {} s",
                                             children.first_running(), limits.all.count() / 1000)));
    }
    for (const int rank : ended) {
      if (children[rank].succeeded() ||
          (first_failure && (!over_a_peer || children[rank].failed_over_a_peer()))) {
        continue;
      }
      if (!first_failure) {
        deadline = Deadline(limits.after_failure);
      }
      first_failure = failure(rank, children[rank]);
      over_a_peer = children[rank].failed_over_a_peer();
    }
  }
  if (first_failure) {
    return operation_error(*std::move(first_failure));
  }
  std::vector<std::string> results;
  for (int rank = 0; rank < ranks; ++rank) {
    results.push_back(children[rank].text.substr(1));
  }
  return results;
}

}  // namespace headrace::bench
