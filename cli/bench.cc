#include "bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/balance_bench.h"
#include "bench/forked_ranks.h"
#include "bench/gather_bench.h"
#include "bench/lockstep_bench.h"
#include "bench/result.h"
#include "options.h"
#include "transport/exchange.h"

namespace headrace::cli {
namespace {

struct Options {
  int ranks = 2;
  int mib = 64;
  int shard_mib = 32;
  int rounds = 15;
  int limit_seconds = 300;
  int chunk_kib = static_cast<int>(SessionConfig{}.chunk_bytes >> 10);
  int staging_kib = static_cast<int>(ReduceScatterOptions{}.chunk_bytes >> 10);
  int staging_slots = ReduceScatterOptions{}.staging_slots;
  int nodes = bench::PlanningCase{}.nodes;
  int local_ranks = bench::PlanningCase{}.local_ranks;
  std::string dtype = "bfloat16";
  bool json = false;
};

DType dtype_of(const Options& options) {
  return options.dtype == "float32" ? DType::float32 : DType::bfloat16;
}

void print(const bench::CaseResult& result, bool json) {
  std::printf("%s\n", json ? bench::to_json(result).c_str() : bench::to_text(result).c_str());
}

bench::CaseResult describe(const Options& options, const GroupSpec& group, const std::string& name,
                           std::vector<bench::Samples> arms) {
  double bytes = 0;
  for (const ParameterSpec& parameter : group.parameters) {
    bytes += static_cast<double>(parameter.rows * parameter.row_elements) *
             static_cast<double>(item_size(parameter.dtype));
  }
  return {.bench = name,
          .ranks = options.ranks,
          .mib = bytes / (1 << 20),
          .tensors = group.parameters.size(),
          .dtype = options.dtype,
          .arms = std::move(arms)};
}

bench::RankPlan rank_plan(const Options& options, const GroupSpec& group, int rank) {
  return {.rank = rank,
          .world_size = options.ranks,
          .group = group,
          .rounds = {.warm_up = 3, .timed = options.rounds},
          .chunk_bytes = static_cast<std::size_t>(options.chunk_kib) << 10,
          .reduce_scatter = {.staging_slots = options.staging_slots,
                             .chunk_bytes = static_cast<std::size_t>(options.staging_kib) << 10},
          .next_exchange = {},
          .peers = {}};
}

// Runs one benchmark on forked ranks.
std::vector<bench::Samples> run(
    const Options& options, const GroupSpec& group,
    Result<std::vector<bench::Spans>> (*benchmark)(const bench::RankPlan&)) {
  // One a session, one for the baseline's transport.
  std::vector<ForkExchange> exchanges;
  for (int i = 0; i < 3; ++i) {
    exchanges.push_back(value_or_throw(ForkExchange::make(options.ranks)));
  }
  return value_or_throw(
      bench::fork_ranks(options.ranks, Milliseconds(options.limit_seconds * 1000), [&](int rank) {
        bench::RankPlan plan = rank_plan(options, group, rank);
        auto next = std::make_shared<std::size_t>(0);
        plan.next_exchange = [&exchanges, next, rank] {
          return exchanges[(*next)++].for_rank(rank);
        };
        return benchmark(plan);
      }));
}

void run_gather(const Options& options) {
  const GroupSpec group = bench::bench_group(options.mib, dtype_of(options));
  std::vector<bench::Samples> samples = run(options, group, &bench::gather_bench);
  // The first arm is the publish, which is timed apart; the copy of the whole group is N times its
  // limit.
  bench::Samples publish = samples.front();
  samples.erase(samples.begin());
  print(describe(options, group, "publish", {std::move(publish)}), options.json);
  print(describe(options, group, "gather", std::move(samples)), options.json);
}

// Shared memory of a rank over the bytes of its shard.
double memory_a_shard_byte(const Options& options, const GroupSpec& group,
                           Accumulation accumulate) {
  const Topology topology = value_or_throw(Topology::single_node(options.ranks));
  const OnDemandPlan plan(topology, ModelSpec{.groups = {group}},
                          static_cast<std::size_t>(options.chunk_kib) << 10, accumulate);
  return static_cast<double>(plan.bytes()) / static_cast<double>(plan.map(0).shard_group_bytes());
}

void run_push(const Options& options) {
  const GroupSpec group = bench::bench_group(options.mib, dtype_of(options));
  std::vector<bench::Samples> arms = run(options, group, &bench::push_bench);
  // The first two arms are whole minibatches.
  std::vector<bench::Samples> minibatches(arms.begin(), arms.begin() + 2);
  arms.erase(arms.begin(), arms.begin() + 2);
  bench::CaseResult push = describe(options, group, "push", std::move(arms));
  push.memory_unit = "bytes of shared memory a byte of shard";
  for (const Accumulation accumulate : {Accumulation::arrival, Accumulation::reproducible}) {
    push.memory[to_string(accumulate)] = memory_a_shard_byte(options, group, accumulate);
  }
  print(push, options.json);
  print(describe(options, group, "push_minibatch", std::move(minibatches)), options.json);
}

void run_all_gather(const Options& options) {
  const GroupSpec group =
      bench::bench_group(std::int64_t{options.shard_mib} * options.ranks, dtype_of(options));
  print(describe(options, group, "all_gather", run(options, group, &bench::all_gather_bench)),
        options.json);
}

void run_reduce_scatter(const Options& options) {
  const GroupSpec group = bench::bench_group(std::int64_t{options.shard_mib} * options.ranks,
                                             dtype_of(options), bench::k_layer_matrices);
  bench::CaseResult result =
      describe(options, group, "reduce_scatter", run(options, group, &bench::reduce_scatter_bench));
  const bench::StagingMemory memory =
      value_or_throw(bench::staging_memory(rank_plan(options, group, 0)));
  result.memory = {{"arena", memory.used}, {"bound", memory.bound}};
  result.memory_unit = "of the fp32 output";
  print(result, options.json);
}

void run_plan(const Options& options) {
  const bench::PlanningResult result = value_or_throw(
      bench::planning_bench({.nodes = options.nodes,
                             .local_ranks = options.local_ranks,
                             .group = bench::bench_group(options.mib, dtype_of(options)),
                             .rounds = options.rounds}));
  const auto case_of = [&](const char* name, const std::vector<double>& ms, std::size_t ops) {
    const double slowest = *std::max_element(ms.begin(), ms.end());
    if (options.json) {
      const nlohmann::ordered_json json{
          {"bench", name},
          {"case",
           {{"nodes", options.nodes},
            {"local_ranks", options.local_ranks},
            {"tensors", bench::bench_group(options.mib, dtype_of(options)).parameters.size()}}},
          {"ms", bench::median(ms)},
          {"slowest_ms", slowest},
          {"operations", ops}};
      fmt::print("{}\n", json.dump());
    } else {
      fmt::print("{} of one of {} x {} ranks: {:.2f} ms, at most {:.2f} ms, {} operations\n", name,
                 options.nodes, options.local_ranks, bench::median(ms), slowest, ops);
    }
  };
  case_of("plan_all_gather", result.all_gather_ms, result.all_gather_ops);
  case_of("plan_reduce_scatter", result.reduce_scatter_ms, result.reduce_scatter_ops);
}

void run_balance(const Options& options) {
  const auto print_all = [&](const auto& lines) {
    for (const auto& line : lines) {
      fmt::print("{}\n", options.json ? bench::to_json(line) : bench::to_text(line));
      std::fflush(stdout);
    }
  };
  print_all(value_or_throw(bench::balance_bench(options.rounds)));
  print_all(value_or_throw(bench::balance_bubbles()));
}

}  // namespace

void add_bench(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* bench =
      app.add_subcommand("bench", "Measure an operation beside its peers and its limit");
  bench->require_subcommand(1);
  const auto add_number = [](CLI::App* command, const char* name, int& value, const char* help,
                             int most) {
    command->add_option(name, value, help)->capture_default_str()->check(whole_number(1, most));
  };
  const auto add_plain = [&](const char* name, const char* help, void (*run_it)(const Options&)) {
    CLI::App* command = bench->add_subcommand(name, help);
    add_number(command, "--rounds", options->rounds, "timed rounds after 3 of warm-up", 100000);
    command->add_flag("--json", options->json, "one JSON object a case and line");
    command->callback([options, run_it] { run_it(*options); });
    return command;
  };
  const auto add = [&](const char* name, const char* help, void (*run_it)(const Options&)) {
    CLI::App* command = add_plain(name, help, run_it);
    command->add_option("--dtype", options->dtype, "compute dtype")
        ->capture_default_str()
        ->check(CLI::IsMember({"bfloat16", "float32"}));
    return command;
  };
  const auto add_forked = [&](const char* name, const char* help, void (*run_it)(const Options&)) {
    CLI::App* command = add(name, help, run_it);
    add_number(command, "--ranks", options->ranks, "ranks, each a process pinned to one core", 64);
    add_number(command, "--limit-seconds", options->limit_seconds, "longest time for all of it",
               86400);
    return command;
  };
  const auto add_group_size = [&](CLI::App* command) {
    add_number(command, "--mib", options->mib, "size of the unsharded group in MiB", 65536);
  };
  const auto add_shard_size = [&](CLI::App* command) {
    add_number(command, "--mib", options->shard_mib, "size of a rank's shard in MiB", 65536);
  };
  for (CLI::App* command :
       {add_forked("gather", "gather a group from every rank's published shard", &run_gather),
        add_forked("push", "add a group's gradients to every owner's accumulators", &run_push)}) {
    add_group_size(command);
    add_number(command, "--chunk-kib", options->chunk_kib, "accumulators under one lock, in KiB",
               1 << 20);
  }
  add_shard_size(
      add_forked("all-gather", "lockstep: gather a group of 30 tensors", &run_all_gather));
  CLI::App* reduce_scatter = add_forked(
      "reduce-scatter", "lockstep: sum the gradients of 16 matrices in fp32", &run_reduce_scatter);
  add_shard_size(reduce_scatter);
  add_number(reduce_scatter, "--staging-kib", options->staging_kib,
             "pushed into a staging slot at a time, in KiB", 1 << 20);
  add_number(reduce_scatter, "--staging-slots", options->staging_slots, "staging slots", 1 << 10);
  CLI::App* plan =
      add("plan", "plan one rank's lockstep programs for a group of 30 tensors", &run_plan);
  add_group_size(plan);
  add_number(plan, "--nodes", options->nodes, "number of nodes M", 4096);
  add_number(plan, "--local", options->local_ranks, "ranks a node L", 64);
  add_plain("balance", "plan minibatches; and how long ranks wait under each strategy",
            &run_balance);
}

}  // namespace headrace::cli
