#include "replay/arms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace headrace::replay {

std::string name_of(const ArmChoice& choice) {
  return fmt::format("{} {}", to_string(choice.way), headrace::to_string(choice.strategy));
}

Arm make_arm(const ArmChoice& choice, const std::vector<BalancePlan>& plans, double ns_a_cost) {
  Arm arm{.name = name_of(choice), .way = choice.way, .minibatches = {}};
  for (const BalancePlan& given : plans) {
    const BalancePlan plan = choice.way == Way::on_demand ? given : padded_for_lockstep(given);
    Minibatch& minibatch = arm.minibatches.emplace_back();
    for (const auto& microbatches : plan.ranks) {
      auto& ns = minibatch.emplace_back();
      for (const Microbatch& microbatch : microbatches) {
        if (choice.way != Way::on_demand || !microbatch.filler()) {
          ns.push_back(std::llround(microbatch.cost * ns_a_cost));
        }
      }
    }
  }
  return arm;
}

std::vector<double> ideal_ns(const Arm& arm) {
  std::vector<double> ideals;
  for (const Minibatch& minibatch : arm.minibatches) {
    std::int64_t ideal = 0;
    if (arm.way == Way::on_demand) {
      for (const auto& rank : minibatch) {
        ideal = std::max(ideal, std::accumulate(rank.begin(), rank.end(), std::int64_t{0}));
      }
    } else {
      for (std::size_t step = 0; step < minibatch.front().size(); ++step) {
        ideal +=
            std::ranges::max(minibatch, {}, [&](const auto& rank) { return rank[step]; })[step];
      }
    }
    ideals.push_back(static_cast<double>(ideal));
  }
  return ideals;
}

}  // namespace headrace::replay
