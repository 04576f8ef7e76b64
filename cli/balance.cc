#include "balance.h"

#include <fmt/format.h>

#include <cstdint>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "balance/cost_model_parse.h"
#include "balance/lengths.h"
#include "balance/plan_svg.h"
#include "balance/text_input.h"
#include "balance/workloads.h"
#include "balance_json.h"
#include "balance_plans.h"
#include "balance_text.h"
#include "options.h"
#include "terminal.h"

namespace headrace::cli {
namespace {

constexpr std::int64_t k_most_samples = 1 << 30;
constexpr std::int64_t k_samples_per_rank = 8;
constexpr const char* k_standard_output = "-";

struct Options {
  std::string lengths;
  std::string field;
  std::int64_t samples = 0;  ///< of a workload; 0: k_samples_per_rank for each rank
  std::int64_t world_size = 1;
  std::int64_t cap = 1;
  std::string strategy = to_string(Strategy::lb_mini);
  std::string model = "1.5B";
  std::string oversize = to_string(Oversize::error);
  std::int64_t alignment = 1;
  bool equal_samples = false;
  std::int64_t min_microbatches = 0;
  std::int64_t samples_per_minibatch = 0;  ///< 0: all of them in one
  bool shuffle = false;
  std::optional<std::uint64_t> seed;
  std::uint64_t epoch = 0;
  bool compare = false;
  bool json = false;
  std::string svg;
};

BalanceOptions balance_options(const Options& options, Strategy strategy) {
  return {.world_size = static_cast<int>(options.world_size),
          .cap = options.cap,
          .strategy = strategy,
          .cost = value_or_throw(parse_cost_model(options.model)),
          .oversize = value_or_throw(parse_oversize(options.oversize)),
          .alignment = options.alignment,
          .equal_samples = options.equal_samples,
          .min_microbatches = static_cast<int>(options.min_microbatches)};
}

std::vector<PlannedMinibatch> plans_of(const std::vector<std::int64_t>& lengths,
                                       const Options& options, const BalanceOptions& balance) {
  const Cutting cutting{.samples_per_minibatch = options.samples_per_minibatch,
                        .shuffle = options.shuffle,
                        .seed = options.seed.value_or(0),
                        .epoch = options.epoch};
  return value_or_throw(plan_minibatches(lengths, cutting, balance));
}

/// Names of all values, with commas between them.
template <class Value>
std::string names_of(std::span<const Value> values) {
  std::vector<std::string> names;
  for (const Value value : values) {
    names.emplace_back(to_string(value));
  }
  return joined(names);
}

std::vector<std::int64_t> lengths_of(const Options& options) {
  if (const Result<Workload> workload = parse_workload(options.lengths)) {
    const std::int64_t count =
        options.samples > 0 ? options.samples : k_samples_per_rank * options.world_size;
    return workload_lengths(*workload, static_cast<std::size_t>(count), options.seed.value_or(0));
  }
  if (options.samples > 0) {
    throw std::runtime_error(
        fmt::format("--samples is for a workload, and {} is none: give --lengths one of {}",
                    options.lengths, names_of(workloads())));
  }
  if (options.seed && !options.shuffle) {
    throw std::runtime_error("--seed has nothing to choose here: give --shuffle too");
  }
  return value_or_throw(read_lengths(options.lengths, options.field));
}

void compare(const std::vector<std::int64_t>& lengths, const Options& options) {
  std::vector<std::pair<Strategy, Totals>> rows;
  for (const Strategy strategy : strategies()) {
    const BalanceOptions balance = balance_options(options, strategy);
    rows.emplace_back(strategy, totals(plans_of(lengths, options, balance), options.alignment));
  }
  fmt::print("{}", options.json
                       ? comparison_json(rows, balance_options(options, Strategy::none)) + "\n"
                       : comparison_text(rows));
}

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) {
    throw std::runtime_error(fmt::format("cannot write {}", path));
  }
}

void run(const Options& options) {
  const std::vector<std::int64_t> lengths = lengths_of(options);
  if (options.compare) {
    compare(lengths, options);
    return;
  }
  const BalanceOptions balance =
      balance_options(options, value_or_throw(parse_strategy(options.strategy)));
  const std::vector<PlannedMinibatch> plans = plans_of(lengths, options, balance);
  const BalancePlan& shown = plans[worst(plans)].plan;
  if (options.svg == k_standard_output) {
    fmt::print("{}", plan_svg(shown));
    return;
  }
  if (!options.svg.empty()) {
    write(options.svg, plan_svg(shown));
  }
  const Totals sum = totals(plans, options.alignment);
  if (options.json) {
    fmt::print("{}\n", balance_json(plans, sum, balance));
    return;
  }
  fmt::print("{}", summary_text(sum, balance, options.model));
  if (plans.size() > 1) {
    const std::size_t at = worst(plans);
    fmt::print("\nthe worst is minibatch {} of 0 to {}\n", at, plans.size() - 1);
    fmt::print("{}", summary_text(totals({plans[at]}, options.alignment), balance, options.model));
  }
  fmt::print("\n{}", bars_text(shown, standard_output()));
  if (!options.svg.empty()) {
    fmt::print("\npicture in {}\n", options.svg);
  }
}

}  // namespace

void add_balance(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* balance = app.add_subcommand(
      "balance", "Who trains which samples in which microbatch, and what that is worth");
  const auto add_number = [balance](const char* name, std::int64_t& value, const char* help,
                                    std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
    return balance->add_option(name, value, help)->check(whole_number(1, most));
  };
  balance
      ->add_option("--lengths", options->lengths,
                   "tokens of each sample: a file of numbers, JSON lines or CSV (- is standard "
                   "input), or a workload: " +
                       names_of(workloads()))
      ->required();
  balance->add_option("--field", options->field,
                      "JSON field or CSV column that holds them, 'length' if not given; the items "
                      "of a list such as input_ids are counted");
  add_number("--samples", options->samples, "of a workload; 8 a rank if not given", k_most_samples);
  add_number("--world-size", options->world_size, "ranks", k_most_ranks)->required();
  add_number("--cap", options->cap, "most tokens of a microbatch, never exceeded")->required();
  CLI::Option* strategy =
      balance
          ->add_option("--strategy", options->strategy,
                       "how samples are given to ranks: " + names_of(strategies()))
          ->capture_default_str()
          ->check(parsed_by(parse_strategy, "STRATEGY"));
  balance
      ->add_option(
          "--model", options->model,
          "cost of a sample: a preset (" + CostModel::preset_names() +
              "), coefficients quadratic,linear[,per_microbatch], a model's config.json or "
              "its folder, or a file of measured tokens,cost")
      ->capture_default_str()
      ->check(parsed_by(parse_cost_model, "MODEL"));
  add_number("--samples-per-minibatch", options->samples_per_minibatch,
             "samples of all ranks between two optimizer steps; all in one if not given");
  balance
      ->add_option("--oversize", options->oversize,
                   "what becomes of a sample over the cap: error, truncate, drop or split")
      ->capture_default_str()
      ->check(parsed_by(parse_oversize, "POLICY"));
  add_number("--alignment", options->alignment,
             "lengths count towards the cap rounded up to a multiple of this")
      ->capture_default_str();
  balance->add_flag("--equal-samples", options->equal_samples,
                    "as many samples on every rank, give or take one");
  add_number("--min-microbatches", options->min_microbatches, "of every rank, at least",
             k_most_min_microbatches);
  CLI::Option* shuffle =
      balance->add_flag("--shuffle", options->shuffle, "in the order of headrace.data.minibatches");
  balance->add_option("--seed", options->seed, "of that order, and of a workload; 0 if not given")
      ->check(whole_number(0));
  balance->add_option("--epoch", options->epoch, "of that order")
      ->capture_default_str()
      ->needs(shuffle)
      ->check(whole_number(0));
  CLI::Option* comparison =
      balance->add_flag("--compare", options->compare, "every strategy, a line each")
          ->excludes(strategy);
  CLI::Option* json = balance->add_flag("--json", options->json, "One JSON object");
  balance
      ->add_option(
          "--svg", options->svg,
          "also a picture (of the worst minibatch where there are several) into this file; "
          "- is standard output, without text")
      ->excludes(json)
      ->excludes(comparison);
  balance->callback([options] { run(*options); });
}

}  // namespace headrace::cli
