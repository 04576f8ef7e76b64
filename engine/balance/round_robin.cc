#include <algorithm>

#include "balance/microbatches.h"
#include "balance/packing.h"
#include "balance/rank_assignment.h"

namespace headrace {
namespace {

/// One piece a microbatch, in the ranks' own order of pieces.
Packing one_by_one(const PackingProblem& problem, const RankPieces& ranks) {
  Packing packing;
  for (const auto& pieces : ranks) {
    Bins& microbatches = packing.emplace_back();
    for (const std::size_t piece : pieces) {
      microbatches.push_back({piece});
    }
    microbatches.resize(std::max(microbatches.size(), problem.min_microbatches));
  }
  return packing;
}

}  // namespace

Packing pack_none(const PackingProblem& problem) {
  return one_by_one(problem, dealt_in_turns(problem, groups_in_order(problem)));
}

Packing pack_sorted(const PackingProblem& problem) {
  return single_packing(problem, dealt_in_turns(problem, groups_by_cost(problem)));
}

}  // namespace headrace
