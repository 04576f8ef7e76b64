#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <vector>

#include "balance/packing.h"

namespace headrace::balance_test {

/// The least makespans of a problem of at most nine or so pieces without groups, by trying
/// everything.
struct Optimum {
  double lockstep = std::numeric_limits<double>::infinity();
  double on_demand = std::numeric_limits<double>::infinity();
};

/// Every way of putting pieces into microbatches under the cap; then steps of like cost, or every
/// way of giving microbatches to ranks.
class BruteForce {
 public:
  explicit BruteForce(const PackingProblem& problem) : problem_(problem) { place(0); }
  Optimum optimum() const { return optimum_; }

 private:
  void place(std::size_t piece) {
    if (piece == problem_.sizes.size()) {
      lockstep();
      rank_load_.assign(problem_.ranks, 0.0);
      assign(0);
      return;
    }
    for (std::size_t bin = 0; bin <= load_.size(); ++bin) {
      if (bin == load_.size()) {
        load_.push_back(problem_.per_microbatch + problem_.costs[piece]);
        room_.push_back(problem_.cap - problem_.sizes[piece]);
        place(piece + 1);
        load_.pop_back();
        room_.pop_back();
        return;
      }
      if (room_[bin] < problem_.sizes[piece]) {
        continue;
      }
      load_[bin] += problem_.costs[piece];
      room_[bin] -= problem_.sizes[piece];
      place(piece + 1);
      load_[bin] -= problem_.costs[piece];
      room_[bin] += problem_.sizes[piece];
    }
  }

  void lockstep() {
    std::vector<double> falling = load_;
    std::ranges::sort(falling, std::greater<>());
    double sum = 0.0;
    for (std::size_t i = 0; i < falling.size(); i += problem_.ranks) {
      sum += falling[i];
    }
    optimum_.lockstep = std::min(optimum_.lockstep, sum);
  }

  void assign(std::size_t bin) {
    if (bin == load_.size()) {
      optimum_.on_demand = std::min(optimum_.on_demand, std::ranges::max(rank_load_));
      return;
    }
    for (double& rank : rank_load_) {
      const double before = rank;
      rank += load_[bin];
      if (rank < optimum_.on_demand) {
        assign(bin + 1);
      }
      rank = before;
      if (before == 0.0) {
        break;  // empty ranks are alike
      }
    }
  }

  PackingProblem problem_;
  Optimum optimum_;
  std::vector<double> load_;
  std::vector<std::int64_t> room_;
  std::vector<double> rank_load_;
};

}  // namespace headrace::balance_test
