#include "balance/strategies.h"

#include <utility>

#include "balance/packing.h"
#include "balance/prepared_samples.h"

namespace headrace {
namespace {

PackingFunction packing_function(Strategy strategy) {
  switch (strategy) {
    case Strategy::none:
      return pack_none;
    case Strategy::sorted:
      return pack_sorted;
    case Strategy::lb_micro:
      return pack_lb_micro;
    case Strategy::lb_mini:
      return pack_lb_mini;
    case Strategy::verl_native:
    case Strategy::verl_optimized:
      return pack_two_level;
  }
  return pack_none;
}

}  // namespace

Result<BalancePlan> plan_minibatch(std::span<const std::int64_t> lengths,
                                   const BalanceOptions& options) {
  HEADRACE_TRY_ASSIGN(PreparedSamples samples, prepare(lengths, options));
  const Packing packing = packing_function(options.strategy)(samples.problem(options));
  return finish(std::move(samples), options, packing);
}

}  // namespace headrace
