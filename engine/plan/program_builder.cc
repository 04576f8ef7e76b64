#include "plan/program_builder.h"

#include <algorithm>

namespace headrace {

std::uint32_t ProgramBuilder::add(Op op) {
  program_.ops.push_back(std::move(op));
  return static_cast<std::uint32_t>(program_.ops.size() - 1);
}

std::uint32_t ProgramBuilder::raise(OpKind kind, Lane lane, int peer, SignalId signal,
                                    std::vector<std::uint32_t> after) {
  return add({.kind = kind,
              .lane = lane,
              .after = std::move(after),
              .peer = peer,
              .signal = signal,
              .count = ++raised_[{peer, signal}]});
}

std::uint32_t ProgramBuilder::wait(Lane lane, int peer, SignalId signal, std::uint32_t count,
                                   std::vector<std::uint32_t> after) {
  std::uint32_t& awaited = awaited_[{peer, signal}];
  awaited = std::max(awaited, count);
  return add({.kind = OpKind::wait,
              .lane = lane,
              .after = std::move(after),
              .peer = peer,
              .signal = signal,
              .count = count});
}

std::uint32_t ProgramBuilder::wait_for_earlier(Lane lane, int peer, SignalId signal,
                                               std::uint32_t total) {
  std::uint32_t& awaited = awaited_[{peer, signal}];
  awaited = std::max(awaited, total);
  return add({.kind = OpKind::wait, .lane = lane, .peer = peer, .signal = signal, .calls_back = 1});
}

std::uint32_t ProgramBuilder::mark(Lane lane, Milestone milestone,
                                   std::vector<std::uint32_t> after) {
  return add(
      {.kind = OpKind::mark, .lane = lane, .after = std::move(after), .milestone = milestone});
}

RankProgram ProgramBuilder::take() && {
  for (const auto& [key, count] : raised_) {
    program_.raised.push_back({.peer = key.first, .signal = key.second, .count = count});
  }
  for (const auto& [key, count] : awaited_) {
    program_.awaited.push_back({.peer = key.first, .signal = key.second, .count = count});
  }
  return std::move(program_);
}

}  // namespace headrace
