#include "replay.h"

#include <cstdio>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "balance/lengths.h"
#include "balance/workloads.h"
#include "options.h"
#include "replay/decoder.h"
#include "replay/study.h"
#include "replay/study_text.h"
#include "replay/sweep.h"
#include "replay/sweep_text.h"

namespace headrace::cli {
namespace {

constexpr const char* k_model = "1.5B";

struct Options {
  std::string lengths;
  std::string field;
  std::string model = k_model;
  std::string mode = "all";
  std::string strategy;
  std::vector<std::string> arms;
  std::string machine = "h200";
  std::uint64_t seed = 0;
  replay::StudyConfig study{.decoder = value_or_throw(replay::parse_decoder(k_model))};
  double communication = 0;
  int limit_seconds = 240;
  int sweep = 0;
  bool pinned = false;
  bool json = false;
};

std::vector<std::int64_t> lengths_of(const Options& options) {
  const replay::StudyConfig& study = options.study;
  if (const auto workload = parse_workload(options.lengths)) {
    const std::int64_t count = std::int64_t{study.ranks} * study.samples_per_rank * study.steps;
    return workload_lengths(workload.value(), static_cast<std::size_t>(count), options.seed);
  }
  return value_or_throw(read_lengths(options.lengths, options.field));
}

// "on-demand:lb-mini".
replay::ArmChoice arm_choice(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) {
    throw std::runtime_error("an arm is a mode and a strategy, such as on-demand:lb-mini, not '" +
                             text + "'");
  }
  return {.way = value_or_throw(replay::parse_way(text.substr(0, colon))),
          .strategy = value_or_throw(parse_strategy(text.substr(colon + 1)))};
}

std::vector<replay::ArmChoice> arm_choices(const Options& options) {
  std::vector<replay::ArmChoice> choices;
  for (const std::string& arm : options.arms) {
    choices.push_back(arm_choice(arm));
  }
  if (!choices.empty()) {
    return choices;
  }
  std::vector<replay::Way> ways;
  if (options.mode == "all") {
    ways = {replay::Way::on_demand, replay::Way::lockstep, replay::Way::packed};
  } else {
    ways = {value_or_throw(replay::parse_way(options.mode))};
  }
  for (const replay::Way way : ways) {
    if (options.strategy.empty()) {
      choices.push_back(
          {.way = way,
           .strategy = way == replay::Way::on_demand ? Strategy::lb_mini : Strategy::lb_micro});
      continue;
    }
    std::istringstream names(options.strategy);
    for (std::string name; std::getline(names, name, ',');) {
      choices.push_back({.way = way, .strategy = value_or_throw(parse_strategy(name))});
    }
  }
  return choices;
}

void sweep(const Options& options) {
  replay::SweepConfig config{.workloads = options.sweep, .seed = options.seed};
  config.limits.all = Milliseconds(options.limit_seconds * 1000);
  const auto cases = value_or_throw(replay::run_sweep(config));
  const replay::SweepScore score = replay::score(cases, config.tie);
  std::fputs(
      options.json ? replay::to_json(cases, score).c_str() : replay::to_text(cases, score).c_str(),
      stdout);
}

void run(Options options) {
  if (options.sweep > 0) {
    sweep(options);
    return;
  }
  if (options.lengths.empty()) {
    throw std::runtime_error("replay needs --lengths, or --sweep");
  }
  replay::StudyConfig& study = options.study;
  study.decoder = value_or_throw(replay::parse_decoder(options.model));
  study.machine = value_or_throw(replay::machine(options.machine));
  study.lengths = lengths_of(options);
  study.arms = arm_choices(options);
  study.placement = options.pinned ? bench::Placement::pinned : bench::Placement::free;
  study.limits.all = Milliseconds(options.limit_seconds * 1000);
  if (options.communication > 0) {
    study.communication = options.communication;
  }
  const replay::Study result = value_or_throw(replay::run_study(study));
  std::fputs(options.json ? replay::to_json(study, result).c_str()
                          : replay::to_text(study, result).c_str(),
             stdout);
}

}  // namespace

void add_replay(CLI::App& app) {
  auto options = std::make_shared<Options>();
  replay::StudyConfig& study = options->study;
  CLI::App* replay = app.add_subcommand(
      "replay", "Run the communication of training steps on forked ranks, with compute emulated");
  replay->add_option("--lengths", options->lengths,
                     "file of sample lengths, - for the input, or the name of a workload");
  replay->add_option("--field", options->field, "field or column of a length in a file");
  replay->add_option("--seed", options->seed, "of a workload's lengths")->capture_default_str();
  replay->add_option("--samples-per-rank", study.samples_per_rank, "samples a rank and step")
      ->capture_default_str()
      ->check(whole_number(1, 4096));
  replay->add_option("--model", options->model, "1.5B, 7B, or a Hugging Face config.json")
      ->capture_default_str();
  replay->add_option("--mode", options->mode, "packed, lockstep, on-demand or all")
      ->capture_default_str();
  replay->add_option("--strategy", options->strategy,
                     "strategies, separated by commas; lb-mini on demand, else lb-micro");
  replay->add_option("--arm", options->arms,
                     "mode:strategy, such as lockstep:verl-native; may be given several times, in "
                     "place of --mode and --strategy");
  replay->add_option("--ranks", study.ranks, "ranks, each a process")
      ->capture_default_str()
      ->check(whole_number(1, 64));
  replay->add_option("--steps", study.steps, "timed steps")
      ->capture_default_str()
      ->check(whole_number(1, 10'000));
  replay->add_option("--warm-up", study.warm_up, "steps left out")
      ->capture_default_str()
      ->check(whole_number(1, 1000));
  replay->add_option("--cap", study.cap, "most tokens of a microbatch; 0: the longest sample's")
      ->capture_default_str()
      ->check(whole_number(0));
  replay->add_option("--machine", options->machine, "machine that is emulated")
      ->capture_default_str();
  replay
      ->add_option("--communication", options->communication,
                   "communication over compute, in place of the machine's")
      ->check(CLI::Range(0.0001, 100.0));
  replay->add_option("--model-mib", study.model_mib, "size of the replayed model")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 65536.0));
  replay->add_flag("--worker-threads,!--inline", study.on_worker,
                   "communicate beside compute (the default), or on the computing thread");
  replay
      ->add_option("--sweep", options->sweep,
                   "run so many random workloads in both modes instead, and score auto's choice")
      ->check(whole_number(1, 10'000));
  replay->add_flag("--pinned", options->pinned, "pin each rank to one core");
  replay->add_option("--limit-seconds", options->limit_seconds, "longest time for the ranks")
      ->capture_default_str()
      ->check(whole_number(1, 86'400));
  replay->add_flag("--json", options->json, "one JSON object");
  replay->callback([options] { run(*options); });
}

}  // namespace headrace::cli
