#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "balance/packing.h"

namespace headrace {

/// A lockstep packing under construction: `steps` times `ranks` bins, step t owning bins [t *
/// ranks, (t + 1) * ranks). What it costs is the sum over steps of the costliest bin.
class LockstepSteps {
 public:
  LockstepSteps(const PackingProblem& problem, std::size_t steps);
  /// Bin r of step t holds microbatch t of rank r.
  LockstepSteps(const PackingProblem& problem, const Packing& packing);

  std::size_t bins() const { return items_.size(); }
  std::size_t steps() const { return bins() / problem_->ranks; }
  const std::vector<std::size_t>& items(std::size_t bin) const { return items_[bin]; }
  double load(std::size_t bin) const { return load_[bin]; }
  bool fits(std::size_t bin, std::size_t piece) const {
    return room_[bin] >= problem_->sizes[piece];
  }
  /// The piece must fit.
  void add(std::size_t bin, std::size_t piece);

  double makespan() const;
  /// The same bins, costliest first, so that each step holds bins of like cost.
  LockstepSteps ordered() const;
  /// Moves or swaps pieces between a step's costliest bin and any other bin for as long as that
  /// lowers the makespan, trying `trials` exchanges at most. Returns how many it tried. Where the
  /// problem has groups or wants equal counts, bin r of each step belongs to rank r, and only
  /// exchanges that keep them are tried.
  std::size_t improve(std::size_t trials);
  /// Ranks' microbatches. Bins go to their ranks where improve says so; otherwise, within a step,
  /// the costliest bin goes to the rank with the least so far. Steps without any piece are left out
  /// unless the problem asks for as many microbatches.
  Packing packing() const;

 private:
  struct Peak {
    std::size_t bin = 0;
    double load = 0.0;
  };
  struct Trial;

  std::vector<Peak> peaks(std::size_t step) const;
  void remove(std::size_t bin, std::size_t position);

  const PackingProblem* problem_;
  Bins items_;
  std::vector<double> load_;
  std::vector<std::int64_t> room_;
};

}  // namespace headrace
