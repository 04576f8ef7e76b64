#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "plan/wave_plan.h"

namespace headrace {

/// The waves of a call as the checks see them: parts of a `WavePlan`, or what a test made of them.
/// Refers to what it was made from.
struct WaveParts {
  Topology topology;
  WaveOptions options;
  std::span<const Wave> waves;    ///< of one pass
  std::span<const Round> rounds;  ///< of one pass
  int generations = 1;
  std::function<std::vector<int>(int wave)> stale_residues;

  static WaveParts of(const WavePlan& plan);
};

/// What goes wrong when the waves are played through block by block: an inbox block written twice
/// in one wave, a stale block or a missing contributor in a combine. Starts from an inbox full of
/// another call's blocks. Does not depend on the number of transfers a round.
Status check_inbox(const WaveParts& parts);

/// What goes wrong with the rounds: one that is empty, too large or leaves its wave, a contributor
/// that is missing or comes twice.
Status check_rounds(const WaveParts& parts);

/// What goes wrong when an outbox bank of so many blocks is filled and emptied round by round: a
/// partial that has no block when its round starts, or none before the round ahead of it is sent.
Status check_outbox(const WaveParts& parts, int blocks);

/// Inclusive.
struct IntRange {
  int first = 1;
  int last = 1;

  bool operator==(const IntRange&) const = default;
};

/// Every combination of nodes, wave width, transfers a round and gradient mode is one plan.
struct WaveSweep {
  int local_ranks = 8;
  IntRange nodes{2, 1024};
  IntRange widths{1, 8};
  IntRange transfers{1, 32};
  int passes = 4;  ///< accepted plans are checked with 1 to this many

  bool operator==(const WaveSweep&) const = default;
};

struct WaveSweepResult {
  std::int64_t accepted = 0;
  std::int64_t rejected = 0;
  std::int64_t checked = 0;           ///< accepted plans times passes
  std::string first_rejection;        ///< empty where there is none
  std::vector<std::string> failures;  ///< accepted but wrong, the first few
  std::int64_t failed = 0;            ///< all of them

  std::int64_t plans() const { return accepted + rejected; }
};

/// Makes and checks all plans of the sweep. Error where the ranges hold no plan.
Result<WaveSweepResult> sweep_waves(const WaveSweep& sweep);

}  // namespace headrace
