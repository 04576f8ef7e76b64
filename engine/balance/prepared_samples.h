#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "balance/balance_plan.h"
#include "balance/packing.h"
#include "balance/pieces.h"
#include "balance/strategies.h"
#include "base/result.h"

namespace headrace {

/// Samples as a strategy wants them: pieces under the cap with sizes, costs and groups.
struct PreparedSamples {
  Pieces kept;
  std::vector<std::int64_t> sizes;  ///< aligned tokens of each piece
  std::vector<double> costs;
  std::vector<std::size_t> groups;  ///< as PackingProblem::groups

  /// Refers to this object, which must outlive it.
  PackingProblem problem(const BalanceOptions& options) const;
};

/// Checks everything that plan_minibatch promises to check before it packs.
Result<PreparedSamples> prepare(std::span<const std::int64_t> lengths,
                                const BalanceOptions& options);

/// The plan of a packing of `samples`, predictions and lower bounds filled in. Error where the
/// options ask for equal counts and the packing has none.
Result<BalancePlan> finish(PreparedSamples samples, const BalanceOptions& options,
                           const Packing& packing);

}  // namespace headrace
