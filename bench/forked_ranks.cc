#include "bench/forked_ranks.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <sstream>

#include "base/fd.h"

namespace headrace::bench {
namespace {

struct Child {
  pid_t pid = -1;
  Fd output;
  std::string text;
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

// A line an arm: name, then begin and end of each round.
std::string to_lines(const std::vector<Spans>& spans) {
  std::string text;
  for (const Spans& arm : spans) {
    text += arm.name;
    for (const Span& round : arm.rounds) {
      text += fmt::format(" {} {}", round.begin_ns, round.end_ns);
    }
    text += '\n';
  }
  return text;
}

std::vector<Spans> from_lines(const std::string& text) {
  std::vector<Spans> spans;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    Spans& arm = spans.emplace_back();
    words >> arm.name;
    for (Span round; words >> round.begin_ns >> round.end_ns;) {
      arm.rounds.push_back(round);
    }
  }
  return spans;
}

[[noreturn]] void run_child(int rank, int output,
                            const std::function<Result<std::vector<Spans>>(int)>& body) {
  pin_to_core(rank);
  int code = 1;
  if (const auto spans = body(rank)) {
    const std::string text = to_lines(*spans);
    code = ::write(output, text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1;
  } else {
    std::fprintf(stderr, "rank %d: %s\n", rank, spans.error().describe().c_str());
  }
  std::fflush(nullptr);
  ::_exit(code);
}

// Reads until the other end closes or the deadline passes.
bool read_all(Child& child, Deadline deadline) {
  char buffer[4096];
  for (;;) {
    pollfd poll_fd{.fd = child.output.get(), .events = POLLIN, .revents = 0};
    if (::poll(&poll_fd, 1, static_cast<int>(deadline.left().count())) <= 0) {
      return false;
    }
    const ssize_t size = ::read(child.output.get(), buffer, sizeof buffer);
    if (size <= 0) {
      return size == 0;
    }
    child.text.append(buffer, static_cast<std::size_t>(size));
  }
}

}  // namespace

Result<std::vector<Samples>> fork_ranks(
    int ranks, Milliseconds limit,
    const std::function<Result<std::vector<Spans>>(int rank)>& body) {
  std::vector<Child> children(static_cast<std::size_t>(ranks));
  std::fflush(nullptr);
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    if (::pipe(ends) != 0) {
      return system_error(Scope::operation, "cannot make a pipe to a rank");
    }
    Child& child = children[static_cast<std::size_t>(rank)];
    child.pid = ::fork();
    if (child.pid < 0) {
      return system_error(Scope::operation, "cannot fork a rank");
    }
    if (child.pid == 0) {
      ::close(ends[0]);
      run_child(rank, ends[1], body);
    }
    ::close(ends[1]);
    child.output = Fd(ends[0]);
  }
  const Deadline deadline(limit);
  std::vector<std::vector<Spans>> by_rank;
  Status status;
  for (std::size_t rank = 0; rank < children.size(); ++rank) {
    const bool done = read_all(children[rank], deadline);
    if (!done) {
      ::kill(children[rank].pid, SIGKILL);
    }
    int end = 0;
    ::waitpid(children[rank].pid, &end, 0);
    if (status && (!done || !WIFEXITED(end) || WEXITSTATUS(end) != 0)) {
      status = operation_error(
          done ? fmt::format("rank {} failed", rank)
               : fmt::format("rank {} was not done within {} s", rank, limit.count() / 1000));
    }
    by_rank.push_back(from_lines(children[rank].text));
  }
  HEADRACE_TRY(std::move(status));
  return over_ranks(by_rank);
}

}  // namespace headrace::bench
