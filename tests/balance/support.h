#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <numeric>
#include <random>
#include <vector>

#include "balance/balance_plan.h"
#include "balance/shuffle.h"
#include "balance/strategies.h"
#include "balance/workloads.h"
#include "support/sanitizers.h"

namespace headrace::balance_test {

/// Random numbers that are the same in every run and on every platform.
class Random {
 public:
  explicit Random(std::uint64_t seed) : bits_(seed) {}
  /// Uniform in [low, high].
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(bits_.below(static_cast<std::uint64_t>(high - low + 1)));
  }
  /// Uniform in [0, 1).
  double unit() { return static_cast<double>(bits_.next() >> 11) * 0x1p-53; }
  std::vector<std::int64_t> longalign(std::size_t count) {
    std::vector<std::int64_t> lengths(count);
    std::ranges::generate(lengths, [this] { return draw_length(Workload::longalign, bits_); });
    return lengths;
  }

 private:
  SplitMix64 bits_;
};

inline constexpr Strategy k_all[] = {Strategy::none,        Strategy::sorted,
                                     Strategy::lb_micro,    Strategy::lb_mini,
                                     Strategy::verl_native, Strategy::verl_optimized};

inline CostModel cost_1_5b() { return CostModel::preset("1.5B").value(); }

inline BalanceOptions options(Strategy strategy, int world_size, std::int64_t cap) {
  return {.world_size = world_size, .cap = cap, .strategy = strategy, .cost = cost_1_5b()};
}

/// Samples of all microbatches of all ranks, ascending.
inline std::vector<std::size_t> samples_of(const BalancePlan& plan) {
  std::vector<std::size_t> samples;
  for (const auto& microbatches : plan.ranks) {
    for (const Microbatch& microbatch : microbatches) {
      for (const SamplePiece& piece : microbatch.pieces) {
        samples.push_back(piece.sample);
      }
    }
  }
  std::ranges::sort(samples);
  return samples;
}

inline std::vector<std::size_t> each_once(std::size_t count) {
  std::vector<std::size_t> all(count);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

inline std::int64_t largest_microbatch(const BalancePlan& plan) {
  std::int64_t most = 0;
  for (const auto& microbatches : plan.ranks) {
    for (const Microbatch& microbatch : microbatches) {
      most = std::max(most, microbatch.tokens);
    }
  }
  return most;
}

/// Processor time of this thread in seconds: other programs on the machine do not count.
inline double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// Of sorting a fixed list of numbers, the best of a few times.
inline double sorting_seconds() {
  std::mt19937 random(1);
  std::vector<double> numbers(100'000);
  std::generate(numbers.begin(), numbers.end(), random);
  double best = 1e9;
  for (int repeat = 0; repeat < 3; ++repeat) {
    std::vector<double> sorted = numbers;
    const double begin = thread_seconds();
    std::sort(sorted.begin(), sorted.end());
    best = std::min(best, thread_seconds() - begin);
  }
  return best;
}

/// Sanitizers and unoptimised builds run many times slower.
#ifdef NDEBUG
inline constexpr bool k_slow_build = headrace::testing::k_sanitized;
#else
inline constexpr bool k_slow_build = true;
#endif

/// What a limit on processor time may be multiplied by: a slow machine plans as much slower as it
/// sorts.
inline double slowdown_allowed() {
  constexpr double k_usual_seconds = 7e-3;
  return k_slow_build ? 40.0 : std::max(1.0, sorting_seconds() / k_usual_seconds);
}

}  // namespace headrace::balance_test
