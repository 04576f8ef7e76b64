#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "plan/schedule.h"

namespace headrace {

/// Appends operations to a program and keeps its totals.
class ProgramBuilder {
 public:
  /// Each returns the operation's position.
  std::uint32_t add(Op op);
  /// Signal or credit: raises the signal by one.
  std::uint32_t raise(OpKind kind, Lane lane, int peer, SignalId signal,
                      std::vector<std::uint32_t> after = {});
  std::uint32_t wait(Lane lane, int peer, SignalId signal, std::uint32_t count,
                     std::vector<std::uint32_t> after = {});
  /// For all that earlier calls raised; `total` is what this call adds for later ones.
  std::uint32_t wait_for_earlier(Lane lane, int peer, SignalId signal, std::uint32_t total);
  std::uint32_t mark(Lane lane, Milestone milestone, std::vector<std::uint32_t> after = {});

  RankProgram take() &&;

 private:
  using Key = std::pair<int, SignalId>;
  RankProgram program_;
  std::map<Key, std::uint32_t> raised_;
  std::map<Key, std::uint32_t> awaited_;
};

}  // namespace headrace
