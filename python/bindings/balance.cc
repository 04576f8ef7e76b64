#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "balance/balance_plan.h"
#include "balance/communication_model.h"
#include "balance/cost_model.h"
#include "balance/cost_model_parse.h"
#include "balance/karmarkar_karp.h"
#include "balance/model_config.h"
#include "balance/plan_io.h"
#include "balance/shuffle.h"
#include "balance/strategies.h"
#include "balance/workloads.h"
#include "bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace headrace {
namespace {

using Integers = std::vector<std::int64_t>;

constexpr const char* k_default_cost = "1.5B";

std::vector<std::size_t> samples_of(const Microbatch& microbatch) {
  std::vector<std::size_t> samples;
  samples.reserve(microbatch.pieces.size());
  for (const SamplePiece& piece : microbatch.pieces) {
    samples.push_back(piece.sample);
  }
  return samples;
}

CostModel fit(const std::vector<std::tuple<std::int64_t, double>>& points, bool with_microbatch) {
  std::vector<CostPoint> values;
  values.reserve(points.size());
  for (const auto& [tokens, cost] : points) {
    values.push_back({tokens, cost});
  }
  return unwrap(CostModel::fit(values, with_microbatch));
}

/// A config.json as a path, or already read as a dict.
CostModel from_config(const nb::object& config) {
  if (nb::isinstance<nb::dict>(config)) {
    const nb::object text = nb::module_::import_("json").attr("dumps")(config);
    return unwrap(CostModel::from_shape(
        unwrap(shape_from_config(nb::cast<std::string>(text), "the configuration"))));
  }
  const nb::object path = nb::module_::import_("os").attr("fspath")(config);
  return unwrap(CostModel::from_shape(unwrap(read_model_config(nb::cast<std::string>(path)))));
}

/// What plan() and plan_batch() take beside lengths; refers to `labels` and `groups`.
BalanceOptions options_of(int world_size, std::int64_t cap, const std::string& strategy,
                          const std::optional<CostModel>& cost, const std::string& oversize,
                          std::int64_t alignment, double least_gain, const Integers& labels,
                          const Integers& groups, bool equal_samples, int min_microbatches,
                          const std::optional<CommunicationModel>& communication) {
  return {.world_size = world_size,
          .cap = cap,
          .strategy = unwrap(parse_strategy(strategy)),
          .cost = cost ? *cost : unwrap(CostModel::preset(k_default_cost)),
          .oversize = unwrap(parse_oversize(oversize)),
          .alignment = alignment,
          .groups = groups,
          .equal_samples = equal_samples,
          .min_microbatches = min_microbatches,
          .least_gain = least_gain,
          .communication = communication.value_or(CommunicationModel()),
          .labels = labels};
}

BalancePlan plan(const Integers& lengths, int world_size, std::int64_t cap,
                 const std::string& strategy, const std::optional<CostModel>& cost,
                 const std::string& oversize, std::int64_t alignment, double least_gain,
                 const Integers& labels, const Integers& groups, bool equal_samples,
                 int min_microbatches, const std::optional<CommunicationModel>& communication) {
  return unwrap(plan_minibatch(
      lengths, options_of(world_size, cap, strategy, cost, oversize, alignment, least_gain, labels,
                          groups, equal_samples, min_microbatches, communication)));
}

std::vector<BalancePlan> plans(const Integers& lengths, std::size_t minibatches, int world_size,
                               std::int64_t cap, const std::string& strategy,
                               const std::optional<CostModel>& cost, const std::string& oversize,
                               std::int64_t alignment, double least_gain, const Integers& labels,
                               const Integers& groups, bool equal_samples, int min_microbatches,
                               const std::optional<CommunicationModel>& communication) {
  return unwrap(
      plan_batch(lengths, minibatches,
                 options_of(world_size, cap, strategy, cost, oversize, alignment, least_gain,
                            labels, groups, equal_samples, min_microbatches, communication)));
}

double not_negative(double value, const char* name) {
  if (!std::isfinite(value) || value < 0) {
    unwrap(Status(operation_error(
        fmt::format("{} is {}: give what it adds to compute, at least 0", name, value))));
  }
  return value;
}

void bind_communication_model(nb::module_& module) {
  nb::class_<CommunicationModel>(module, "CommunicationModel")
      .def(
          "__init__",
          [](CommunicationModel* self, double gather, double push, double on_demand_minibatch,
             double all_gather, double reduce_scatter, double lockstep_minibatch) {
            new (self) CommunicationModel{
                .gather = not_negative(gather, "gather"),
                .push = not_negative(push, "push"),
                .on_demand_minibatch = not_negative(on_demand_minibatch, "on_demand_minibatch"),
                .all_gather = not_negative(all_gather, "all_gather"),
                .reduce_scatter = not_negative(reduce_scatter, "reduce_scatter"),
                .lockstep_minibatch = not_negative(lockstep_minibatch, "lockstep_minibatch")};
          },
          nb::kw_only(), "gather"_a = 0.0, "push"_a = 0.0, "on_demand_minibatch"_a = 0.0,
          "all_gather"_a = 0.0, "reduce_scatter"_a = 0.0, "lockstep_minibatch"_a = 0.0)
      .def_ro("gather", &CommunicationModel::gather)
      .def_ro("push", &CommunicationModel::push)
      .def_ro("on_demand_minibatch", &CommunicationModel::on_demand_minibatch)
      .def_ro("all_gather", &CommunicationModel::all_gather)
      .def_ro("reduce_scatter", &CommunicationModel::reduce_scatter)
      .def_ro("lockstep_minibatch", &CommunicationModel::lockstep_minibatch);
}

void bind_cost_model(nb::module_& module) {
  nb::class_<CostModel>(module, "CostModel")
      .def(
          "__init__",
          [](CostModel* self, double quadratic, double linear, double per_microbatch) {
            new (self) CostModel(unwrap(CostModel::make(quadratic, linear, per_microbatch)));
          },
          "quadratic"_a, "linear"_a, "per_microbatch"_a = 0.0)
      .def_static(
          "preset", [](const std::string& name) { return unwrap(CostModel::preset(name)); },
          "name"_a)
      .def_static(
          "from_shape",
          [](std::int64_t hidden, std::int64_t layers, std::int64_t heads, std::int64_t kv_heads,
             std::int64_t head_size, std::int64_t intermediate, std::int64_t vocabulary) {
            return unwrap(CostModel::from_shape({.hidden = hidden,
                                                 .layers = layers,
                                                 .heads = heads,
                                                 .kv_heads = kv_heads,
                                                 .head_size = head_size,
                                                 .intermediate = intermediate,
                                                 .vocabulary = vocabulary}));
          },
          nb::kw_only(), "hidden"_a, "layers"_a, "heads"_a, "kv_heads"_a, "head_size"_a,
          "intermediate"_a, "vocabulary"_a)
      .def_static("from_config", &from_config, "config"_a)
      .def_static("fit", &fit, "points"_a, "with_microbatch"_a = false)
      .def_static(
          "parse", [](const std::string& text) { return unwrap(parse_cost_model(text)); }, "text"_a)
      .def("sample", &CostModel::sample, "tokens"_a)
      .def_prop_ro("quadratic", &CostModel::quadratic)
      .def_prop_ro("linear", &CostModel::linear)
      .def_prop_ro("per_microbatch", &CostModel::per_microbatch)
      .def("__repr__",
           [](const CostModel& self) {
             return fmt::format("CostModel({}, {}, {})", self.quadratic(), self.linear(),
                                self.per_microbatch());
           })
      .def("__eq__", [](const CostModel& a, const CostModel& b) { return a == b; });
}

void bind_plan(nb::module_& module) {
  nb::class_<SamplePiece>(module, "Piece")
      .def_ro("sample", &SamplePiece::sample)
      .def_ro("begin", &SamplePiece::begin)
      .def_ro("tokens", &SamplePiece::tokens);
  nb::class_<Microbatch>(module, "Microbatch")
      .def_ro("pieces", &Microbatch::pieces)
      .def_prop_ro("samples", &samples_of)
      .def_ro("tokens", &Microbatch::tokens)
      .def_ro("cost", &Microbatch::cost)
      .def_prop_ro("filler", &Microbatch::filler);
  nb::class_<Prediction>(module, "Prediction")
      .def_ro("makespan", &Prediction::makespan)
      .def_ro("bubble", &Prediction::bubble)
      .def_ro("lower_bound", &Prediction::lower_bound);
  nb::class_<BalancePlan>(module, "Plan")
      .def_prop_ro("strategy", [](const BalancePlan& self) { return to_string(self.strategy); })
      .def_ro("cap", &BalancePlan::cap)
      .def_prop_ro("world_size", &BalancePlan::world_size)
      .def_ro("ranks", &BalancePlan::ranks)
      .def_ro("rank_costs", &BalancePlan::rank_costs)
      .def_ro("oversize", &BalancePlan::oversize)
      .def_ro("tokens", &BalancePlan::tokens)
      .def_ro("tokens_lost", &BalancePlan::tokens_lost)
      .def_ro("lockstep", &BalancePlan::lockstep)
      .def_ro("on_demand", &BalancePlan::on_demand)
      .def_prop_ro("recommendation",
                   [](const BalancePlan& self) { return to_string(self.recommendation); })
      .def_prop_ro("equal_counts", &BalancePlan::equal_counts)
      .def(
          "digest", [](const BalancePlan& self, const Integers& keys) { return self.digest(keys); },
          "keys"_a = Integers())
      .def("padded_for_lockstep", [](const BalancePlan& self) { return padded_for_lockstep(self); })
      .def("to_json", [](const BalancePlan& self) { return to_json(self); })
      .def_static(
          "from_json", [](const std::string& text) { return unwrap(plan_from_json(text)); },
          "text"_a)
      .def("__eq__", [](const BalancePlan& a, const BalancePlan& b) { return a == b; });
  module.def("plan", &plan, "lengths"_a, "world_size"_a, "cap"_a, "strategy"_a = "lb-mini",
             "cost"_a = nb::none(), nb::kw_only(), "oversize"_a = "error", "alignment"_a = 1,
             "least_gain"_a = k_least_gain, "labels"_a = Integers(), "groups"_a = Integers(),
             "equal_samples"_a = false, "min_microbatches"_a = 0, "communication"_a = nb::none());
  module.def("plan_batch", &plans, "lengths"_a, "minibatches"_a, "world_size"_a, "cap"_a,
             "strategy"_a = "lb-mini", "cost"_a = nb::none(), nb::kw_only(), "oversize"_a = "error",
             "alignment"_a = 1, "least_gain"_a = k_least_gain, "labels"_a = Integers(),
             "groups"_a = Integers(), "equal_samples"_a = false, "min_microbatches"_a = 0,
             "communication"_a = nb::none());
}

/// Names of the strategies and workloads are those of the engine; costs are checked here, for the
/// engine's own are always finite.
void bind_functions(nb::module_& module) {
  module.def(
      "karmarkar_karp",
      [](const std::vector<double>& costs, std::size_t parts, bool equal_size) {
        if (parts < 1) {
          throw nb::value_error("karmarkar_karp needs at least 1 part");
        }
        if (!std::ranges::all_of(costs,
                                 [](double cost) { return std::isfinite(cost) && cost >= 0.0; })) {
          throw nb::value_error("costs must be finite and not negative");
        }
        return karmarkar_karp(costs, parts, equal_size ? PartSizes::equal : PartSizes::free);
      },
      "costs"_a, "parts"_a, "equal_size"_a = false);
  module.def(
      "workload_lengths",
      [](const std::string& workload, std::size_t count, std::uint64_t seed) {
        return workload_lengths(unwrap(parse_workload(workload)), count, seed);
      },
      "workload"_a, "count"_a, "seed"_a = 0);
  module.def("workloads", [] {
    std::vector<std::string> names;
    for (const Workload workload : workloads()) {
      names.emplace_back(to_string(workload));
    }
    return names;
  });
}

}  // namespace

void bind_balance(nb::module_& module) {
  bind_cost_model(module);
  bind_communication_model(module);
  bind_plan(module);
  bind_functions(module);
  nb::class_<Permutation>(module, "Permutation")
      .def(nb::init<std::size_t, std::uint64_t, std::uint64_t>(), "size"_a, "seed"_a, "epoch"_a)
      .def("__len__", &Permutation::size)
      .def(
          "slice",
          [](const Permutation& self, std::size_t begin, std::size_t end) {
            return unwrap(self.slice(begin, end));
          },
          "begin"_a, "end"_a);
}

}  // namespace headrace
