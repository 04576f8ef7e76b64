#include "balance/microbatches.h"
#include "balance/packing.h"
#include "balance/rank_assignment.h"

namespace headrace {

Packing pack_two_level(const PackingProblem& problem) {
  return levelled_packing(problem, by_equal_differencing(problem, problem.costs));
}

}  // namespace headrace
