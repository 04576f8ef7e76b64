#include "plan/program_builder.h"

#include <algorithm>

namespace headrace {

std::uint32_t ProgramBuilder::add(Op op) {
  const auto position = static_cast<std::uint32_t>(program_.ops.size());
  last_[static_cast<std::size_t>(op.lane)] = position;
  program_.ops.push_back(std::move(op));
  return position;
}

std::vector<std::uint32_t> ProgramBuilder::last(Lane lane) const {
  const auto& position = last_[static_cast<std::size_t>(lane)];
  return position ? std::vector{*position} : std::vector<std::uint32_t>();
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
  expect(peer, signal, count);
  return add({.kind = OpKind::wait,
              .lane = lane,
              .after = std::move(after),
              .peer = peer,
              .signal = signal,
              .count = count});
}

std::uint32_t ProgramBuilder::wait_for_earlier(Lane lane, int peer, SignalId signal,
                                               std::uint32_t total) {
  expect(peer, signal, total);
  return wait_back(lane, peer, signal, 1);
}

std::uint32_t ProgramBuilder::wait_back(Lane lane, int peer, SignalId signal,
                                        std::uint32_t calls_back) {
  return add({.kind = OpKind::wait,
              .lane = lane,
              .peer = peer,
              .signal = signal,
              .calls_back = calls_back});
}

void ProgramBuilder::expect(int peer, SignalId signal, std::uint32_t total) {
  std::uint32_t& awaited = awaited_[{peer, signal}];
  awaited = std::max(awaited, total);
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
