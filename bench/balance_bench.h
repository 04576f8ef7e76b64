#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace headrace::bench {

/// One planning task of the balancer and the milliseconds of every round.
struct BalanceCase {
  std::string bench;    ///< karmarkar_karp, first_fit or plan_minibatch
  std::string variant;  ///< sizes of the parts, or the strategy; may be empty
  std::vector<std::pair<std::string, std::int64_t>> sizes;  ///< what it was given
  std::vector<double> ms;
};

/// Karmarkar-Karp of 100,000 LongAlign-like lengths into 8 and 64 parts, first-fit decreasing of a
/// million, and a minibatch of 256 on 8 ranks under every strategy.
Result<std::vector<BalanceCase>> balance_bench(int rounds);

/// How long ranks wait under every strategy: LongAlign-like lengths, 8 ranks, 1.5B cost, a cap of
/// 65,536 tokens, compute alone.
struct BubbleRow {
  std::size_t samples_per_rank = 0;
  std::vector<std::pair<std::string, double>> bubble;        ///< by strategy, share of the time
  std::vector<std::pair<std::string, double>> over_lb_mini;  ///< makespan over that of lb-mini
};
Result<std::vector<BubbleRow>> balance_bubbles();

/// One JSON object in one line, and one line for people.
std::string to_json(const BalanceCase& one);
std::string to_text(const BalanceCase& one);
std::string to_json(const BubbleRow& row);
std::string to_text(const BubbleRow& row);

}  // namespace headrace::bench
