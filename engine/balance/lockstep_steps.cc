#include "balance/lockstep_steps.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

#include "balance/longest_first.h"

namespace headrace {
namespace {

/// An improvement smaller than this share of the makespan is rounding.
constexpr double k_rounding = 1e-12;
/// A step's costliest bin without two others is among its three costliest.
constexpr std::size_t k_peaks = 3;

}  // namespace

/// Piece `give` of bin `from` against piece `take` of bin `to` (or nothing), and the change
/// of the makespan.
struct LockstepSteps::Trial {
  std::size_t from = 0;
  std::size_t give = 0;
  std::size_t to = 0;
  std::optional<std::size_t> take;
  double change = 0.0;
};

LockstepSteps::LockstepSteps(const PackingProblem& problem, std::size_t steps)
    : problem_(&problem),
      items_(steps * problem.ranks),
      load_(items_.size(), 0.0),
      room_(items_.size(), problem.cap) {}

LockstepSteps::LockstepSteps(const PackingProblem& problem, const Packing& packing)
    : LockstepSteps(problem, std::ranges::max(packing, {}, &Bins::size).size()) {
  for (std::size_t rank = 0; rank < packing.size(); ++rank) {
    for (std::size_t step = 0; step < packing[rank].size(); ++step) {
      for (const std::size_t piece : packing[rank][step]) {
        add(step * problem.ranks + rank, piece);
      }
    }
  }
}

void LockstepSteps::add(std::size_t bin, std::size_t piece) {
  items_[bin].push_back(piece);
  load_[bin] += problem_->costs[piece];
  room_[bin] -= problem_->sizes[piece];
}

void LockstepSteps::remove(std::size_t bin, std::size_t position) {
  std::vector<std::size_t>& items = items_[bin];
  room_[bin] += problem_->sizes[items[position]];
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(position));
  load_[bin] = 0.0;
  for (const std::size_t piece : items) {
    load_[bin] += problem_->costs[piece];
  }
}

/// The step's costliest bins, the first by index among equals, three at most.
std::vector<LockstepSteps::Peak> LockstepSteps::peaks(std::size_t step) const {
  std::vector<Peak> result;
  for (std::size_t bin = step * problem_->ranks; bin < (step + 1) * problem_->ranks; ++bin) {
    const Peak peak{.bin = bin, .load = load_[bin]};
    const auto place =
        std::ranges::find_if(result, [&](const Peak& other) { return other.load < peak.load; });
    result.insert(place, peak);
    if (result.size() > k_peaks) {
      result.pop_back();
    }
  }
  return result;
}

double LockstepSteps::makespan() const {
  double sum = 0.0;
  for (std::size_t step = 0; step < steps(); ++step) {
    const double peak = peaks(step).front().load;
    sum += peak > 0.0 ? peak + problem_->per_microbatch : 0.0;
  }
  return sum;
}

LockstepSteps LockstepSteps::ordered() const {
  LockstepSteps result(*problem_, steps());
  const std::vector<std::size_t> order = falling(load_);
  for (std::size_t bin = 0; bin < order.size(); ++bin) {
    result.items_[bin] = items_[order[bin]];
    result.load_[bin] = load_[order[bin]];
    result.room_[bin] = room_[order[bin]];
  }
  return result;
}

std::size_t LockstepSteps::improve(std::size_t trials) {
  const std::size_t ranks = problem_->ranks;
  const double least_gain = makespan() * k_rounding;
  std::vector<std::vector<Peak>> step_peaks;
  step_peaks.reserve(steps());
  for (std::size_t step = 0; step < steps(); ++step) {
    step_peaks.push_back(peaks(step));
  }
  /// The costliest load of a step without bins a and b.
  const auto highest_without = [&](std::size_t step, std::size_t a, std::size_t b) {
    for (const Peak& peak : step_peaks[step]) {
      if (peak.bin != a && peak.bin != b) {
        return peak.load;
      }
    }
    return 0.0;
  };
  std::size_t tried = 0;
  std::size_t unchanged = 0;
  for (std::size_t step = 0; unchanged < steps() && tried < trials; step = (step + 1) % steps()) {
    const std::size_t from = step_peaks[step].front().bin;
    const double before = step_peaks[step].front().load;
    std::optional<Trial> best;
    for (std::size_t to = 0; to < bins() && tried < trials; ++to) {
      const bool same_rank = to % ranks == from % ranks;
      if (to == from || !(same_rank || problem_->may_swap())) {
        continue;
      }
      const bool may_move = same_rank || problem_->may_move();
      const std::size_t other_step = to / ranks;
      const double rest = highest_without(step, from, to);
      const double other_before = step_peaks[other_step].front().load;
      const double other_rest = other_step == step ? 0.0 : highest_without(other_step, to, to);
      for (std::size_t give = 0; give < items_[from].size(); ++give) {
        const std::size_t piece = items_[from][give];
        for (std::size_t take = 0; take <= items_[to].size(); ++take) {
          ++tried;
          const bool swap = take < items_[to].size();
          const double back = swap ? problem_->costs[items_[to][take]] : 0.0;
          const std::int64_t back_size = swap ? problem_->sizes[items_[to][take]] : 0;
          const double moved = problem_->costs[piece] - back;
          const std::int64_t moved_size = problem_->sizes[piece] - back_size;
          if (!(swap || may_move) || moved <= 0.0 || moved_size > room_[to] ||
              -moved_size > room_[from]) {
            continue;
          }
          double change = 0.0;
          if (other_step == step) {
            change = std::max({load_[from] - moved, load_[to] + moved, rest}) - before;
          } else {
            change = std::max(load_[from] - moved, rest) - before +
                     std::max(load_[to] + moved, other_rest) - other_before;
          }
          if (change < -least_gain && (!best || change < best->change)) {
            best =
                Trial{.from = from, .give = give, .to = to, .take = std::nullopt, .change = change};
            if (swap) {
              best->take = take;
            }
          }
        }
      }
    }
    if (!best) {
      ++unchanged;
      continue;
    }
    unchanged = 0;
    const std::size_t given = items_[from][best->give];
    remove(from, best->give);
    if (best->take) {
      const std::size_t taken = items_[best->to][*best->take];
      remove(best->to, *best->take);
      add(from, taken);
    }
    add(best->to, given);
    step_peaks[step] = peaks(step);
    step_peaks[best->to / ranks] = peaks(best->to / ranks);
  }
  return tried;
}

Packing LockstepSteps::packing() const {
  const std::size_t ranks = problem_->ranks;
  Packing result(ranks);
  std::vector<double> so_far(ranks, 0.0);
  for (std::size_t step = 0; step < steps(); ++step) {
    const std::span<const double> step_loads(load_.data() + step * ranks, ranks);
    const std::vector<std::size_t> costliest = falling(step_loads);
    if (items_[step * ranks + costliest.front()].empty()) {
      continue;
    }
    std::vector<double> spare(ranks);
    std::ranges::transform(so_far, spare.begin(), [](double load) { return -load; });
    const std::vector<std::size_t> least_loaded = problem_->may_move() ? falling(spare) : costliest;
    for (std::size_t i = 0; i < ranks; ++i) {
      const std::size_t bin = step * ranks + costliest[i];
      result[least_loaded[i]].push_back(items_[bin]);
      so_far[least_loaded[i]] += load_[bin];
    }
  }
  for (Bins& microbatches : result) {
    microbatches.resize(std::max(microbatches.size(), problem_->min_microbatches));
  }
  return result;
}

}  // namespace headrace
