#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
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
  /// For all that was raised before the `calls_back`-th call before this one ended.
  std::uint32_t wait_back(Lane lane, int peer, SignalId signal, std::uint32_t calls_back);
  /// The peer raises the signal to at least this, which a wait of a later call may ask for.
  void expect(int peer, SignalId signal, std::uint32_t total);
  std::uint32_t mark(Lane lane, Milestone milestone, std::vector<std::uint32_t> after = {});

  /// Position of the lane's last operation so far; none where there is none.
  std::vector<std::uint32_t> last(Lane lane) const;

  RankProgram take() &&;

 private:
  using Key = std::pair<int, SignalId>;
  RankProgram program_;
  std::array<std::optional<std::uint32_t>, k_lanes> last_;
  std::map<Key, std::uint32_t> raised_;
  std::map<Key, std::uint32_t> awaited_;
};

}  // namespace headrace
