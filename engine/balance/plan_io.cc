#include "balance/plan_io.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "balance/json_input.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;

Json prediction_json(const Prediction& prediction) {
  return {{"makespan", prediction.makespan},
          {"bubble", prediction.bubble},
          {"lower_bound", prediction.lower_bound}};
}

std::string digest_text(const BalancePlan& plan) { return fmt::format("{:016x}", plan.digest()); }

/// The member of an object, or an error that names it. The parser throws nothing; nor may we.
Result<const Json*> member(const Json& object, const char* name) {
  if (!object.is_object() || !object.contains(name)) {
    return operation_error(fmt::format("a plan in JSON needs the member '{}'", name));
  }
  return &object.at(name);
}

Result<std::int64_t> integer(const Json& value, const char* name) {
  if (!value.is_number_integer()) {
    return operation_error(
        fmt::format("'{}' in a plan must be an integer, not {}", name, value.dump()));
  }
  return value.get<std::int64_t>();
}

Result<std::int64_t> integer_member(const Json& object, const char* name) {
  HEADRACE_TRY_ASSIGN(const Json* value, member(object, name));
  return integer(*value, name);
}

Result<double> number_member(const Json& object, const char* name) {
  HEADRACE_TRY_ASSIGN(const Json* value, member(object, name));
  if (!value->is_number()) {
    return operation_error(
        fmt::format("'{}' in a plan must be a number, not {}", name, value->dump()));
  }
  return value->get<double>();
}

Result<std::string> text_member(const Json& object, const char* name) {
  HEADRACE_TRY_ASSIGN(const Json* value, member(object, name));
  if (!value->is_string()) {
    return operation_error(
        fmt::format("'{}' in a plan must be a string, not {}", name, value->dump()));
  }
  return value->get<std::string>();
}

Result<const Json*> array_member(const Json& object, const char* name) {
  HEADRACE_TRY_ASSIGN(const Json* value, member(object, name));
  if (!value->is_array()) {
    return operation_error(
        fmt::format("'{}' in a plan must be an array, not {}", name, value->dump()));
  }
  return value;
}

Result<Prediction> prediction_member(const Json& object, const char* name) {
  HEADRACE_TRY_ASSIGN(const Json* value, member(object, name));
  Prediction prediction;
  HEADRACE_TRY_ASSIGN(prediction.makespan, number_member(*value, "makespan"));
  HEADRACE_TRY_ASSIGN(prediction.bubble, number_member(*value, "bubble"));
  HEADRACE_TRY_ASSIGN(prediction.lower_bound, number_member(*value, "lower_bound"));
  return prediction;
}

Result<Microbatch> microbatch_from(const Json& value) {
  Microbatch microbatch;
  HEADRACE_TRY_ASSIGN(microbatch.tokens, integer_member(value, "tokens"));
  HEADRACE_TRY_ASSIGN(microbatch.cost, number_member(value, "cost"));
  HEADRACE_TRY_ASSIGN(const Json* pieces, array_member(value, "pieces"));
  for (const Json& numbers : *pieces) {
    if (!numbers.is_array() || numbers.size() != 3) {
      return operation_error(
          fmt::format("a piece in a plan must be [sample, begin, tokens], not {}", numbers.dump()));
    }
    SamplePiece piece;
    HEADRACE_TRY_ASSIGN(const std::int64_t sample, integer(numbers[0], "sample"));
    HEADRACE_TRY_ASSIGN(piece.begin, integer(numbers[1], "begin"));
    HEADRACE_TRY_ASSIGN(piece.tokens, integer(numbers[2], "tokens"));
    piece.sample = static_cast<std::size_t>(sample);
    microbatch.pieces.push_back(piece);
  }
  return microbatch;
}

}  // namespace

std::string to_json(const BalancePlan& plan) {
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    Json microbatches = Json::array();
    for (const Microbatch& microbatch : plan.ranks[rank]) {
      Json pieces = Json::array();
      for (const SamplePiece& piece : microbatch.pieces) {
        pieces.push_back(Json::array({piece.sample, piece.begin, piece.tokens}));
      }
      microbatches.push_back({{"tokens", microbatch.tokens},
                              {"cost", microbatch.cost},
                              {"pieces", std::move(pieces)}});
    }
    ranks.push_back({{"cost", plan.rank_costs[rank]}, {"microbatches", std::move(microbatches)}});
  }
  const Json object = {{"strategy", to_string(plan.strategy)},
                       {"cap", plan.cap},
                       {"tokens", plan.tokens},
                       {"tokens_lost", plan.tokens_lost},
                       {"oversize", plan.oversize},
                       {"digest", digest_text(plan)},
                       {"recommendation", to_string(plan.recommendation)},
                       {"lockstep", prediction_json(plan.lockstep)},
                       {"on_demand", prediction_json(plan.on_demand)},
                       {"ranks", std::move(ranks)}};
  return object.dump();
}

Result<BalancePlan> plan_from_json(std::string_view text) {
  const Json object = parse_json(text);
  if (object.is_discarded()) {
    return operation_error("a plan must be one JSON object; this text is not JSON");
  }
  BalancePlan plan;
  HEADRACE_TRY_ASSIGN(const std::string strategy, text_member(object, "strategy"));
  HEADRACE_TRY_ASSIGN(plan.strategy, parse_strategy(strategy));
  HEADRACE_TRY_ASSIGN(plan.cap, integer_member(object, "cap"));
  HEADRACE_TRY_ASSIGN(plan.tokens, integer_member(object, "tokens"));
  HEADRACE_TRY_ASSIGN(plan.tokens_lost, integer_member(object, "tokens_lost"));
  HEADRACE_TRY_ASSIGN(const Json* oversize, array_member(object, "oversize"));
  for (const Json& sample : *oversize) {
    HEADRACE_TRY_ASSIGN(const std::int64_t index, integer(sample, "oversize"));
    plan.oversize.push_back(static_cast<std::size_t>(index));
  }
  HEADRACE_TRY_ASSIGN(const std::string mode, text_member(object, "recommendation"));
  HEADRACE_TRY_ASSIGN(plan.recommendation, parse_mode(mode));
  HEADRACE_TRY_ASSIGN(plan.lockstep, prediction_member(object, "lockstep"));
  HEADRACE_TRY_ASSIGN(plan.on_demand, prediction_member(object, "on_demand"));
  HEADRACE_TRY_ASSIGN(const Json* ranks, array_member(object, "ranks"));
  for (const Json& rank : *ranks) {
    HEADRACE_TRY_ASSIGN(plan.rank_costs.emplace_back(), number_member(rank, "cost"));
    HEADRACE_TRY_ASSIGN(const Json* microbatches, array_member(rank, "microbatches"));
    std::vector<Microbatch>& list = plan.ranks.emplace_back();
    for (const Json& value : *microbatches) {
      HEADRACE_TRY_ASSIGN(list.emplace_back(), microbatch_from(value));
    }
  }
  HEADRACE_TRY_ASSIGN(const std::string digest, text_member(object, "digest"));
  if (digest != digest_text(plan)) {
    return operation_error(fmt::format(
        "the plan's digest is {}, but its microbatches have {}: it was changed or cut short",
        digest, digest_text(plan)));
  }
  return plan;
}

}  // namespace headrace
