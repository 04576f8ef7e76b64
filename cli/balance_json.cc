#include "balance_json.h"

#include <nlohmann/json.hpp>

#include "balance/plan_io.h"

namespace headrace::cli {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const ModeTotal& mode) {
  return {{"time", mode.time}, {"waiting", mode.waiting}, {"lower_bound", mode.lower_bound}};
}

Json to_json(const Totals& totals) {
  return {{"minibatches", totals.minibatches},
          {"samples", totals.samples},
          {"tokens", totals.tokens},
          {"tokens_lost", totals.tokens_lost},
          {"oversize", totals.oversize},
          {"microbatches", totals.microbatches},
          {"fillers", totals.fillers},
          {"fewest_a_rank", totals.fewest},
          {"most_a_rank", totals.most},
          {"cap_use", totals.cap_use},
          {"lockstep", to_json(totals.lockstep)},
          {"on_demand", to_json(totals.on_demand)},
          {"recommended", to_json(totals.recommended)},
          {"lockstep_minibatches", totals.lockstep_minibatches}};
}

Json asked(const BalanceOptions& options) {
  return {{"world_size", options.world_size},
          {"cap", options.cap},
          {"oversize", to_string(options.oversize)},
          {"alignment", options.alignment},
          {"equal_samples", options.equal_samples},
          {"min_microbatches", options.min_microbatches},
          {"model",
           {{"quadratic", options.cost.quadratic()},
            {"linear", options.cost.linear()},
            {"per_microbatch", options.cost.per_microbatch()}}}};
}

}  // namespace

std::string balance_json(const std::vector<PlannedMinibatch>& plans, const Totals& totals,
                         const BalanceOptions& options) {
  Json object = asked(options);
  object["strategy"] = to_string(options.strategy);
  object["totals"] = to_json(totals);
  object["worst"] = worst(plans);
  Json& minibatches = object["minibatches"] = Json::array();
  for (const PlannedMinibatch& minibatch : plans) {
    minibatches.push_back(
        {{"samples", minibatch.samples}, {"plan", Json::parse(to_json(minibatch.plan))}});
  }
  return object.dump();
}

std::string comparison_json(const std::vector<std::pair<Strategy, Totals>>& strategies,
                            const BalanceOptions& options) {
  Json object = asked(options);
  Json& all = object["strategies"] = Json::object();
  for (const auto& [strategy, totals] : strategies) {
    all[to_string(strategy)] = to_json(totals);
  }
  return object.dump();
}

}  // namespace headrace::cli
