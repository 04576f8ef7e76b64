#include "bench/forked_ranks.h"

#include <fmt/format.h>

#include <sstream>

#include "bench/rank_processes.h"

namespace headrace::bench {
namespace {

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

}  // namespace

Result<std::vector<Samples>> fork_ranks(
    int ranks, Milliseconds limit,
    const std::function<Result<std::vector<Spans>>(int rank)>& body) {
  HEADRACE_TRY_ASSIGN(const std::vector<std::string> texts,
                      run_rank_processes(ranks, Placement::pinned, {.all = limit},
                                         [&](int rank) -> Result<std::string> {
                                           HEADRACE_TRY_ASSIGN(const auto spans, body(rank));
                                           return to_lines(spans);
                                         }));
  std::vector<std::vector<Spans>> by_rank;
  for (const std::string& text : texts) {
    by_rank.push_back(from_lines(text));
  }
  return over_ranks(by_rank);
}

}  // namespace headrace::bench
