#include "bench.h"

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "bench/forked_ranks.h"
#include "bench/gather_bench.h"
#include "bench/result.h"
#include "transport/exchange.h"

namespace headrace::cli {
namespace {

struct Options {
  int ranks = 2;
  int mib = 64;
  int rounds = 15;
  int limit_seconds = 300;
  int chunk_kib = static_cast<int>(SessionConfig{}.chunk_bytes >> 10);
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

// Runs one benchmark on forked ranks; CLI11 turns the exception into an exit code and a line on
// stderr.
std::vector<bench::Samples> run(
    const Options& options, const GroupSpec& group,
    Result<std::vector<bench::Spans>> (*benchmark)(const bench::RankPlan&)) {
  // One a session, one for the baseline's transport.
  std::vector<ForkExchange> exchanges;
  for (int i = 0; i < 3; ++i) {
    auto exchange = ForkExchange::make(options.ranks);
    if (!exchange) {
      throw CLI::RuntimeError(exchange.error().describe(), 1);
    }
    exchanges.push_back(std::move(exchange).value());
  }
  auto samples =
      bench::fork_ranks(options.ranks, Milliseconds(options.limit_seconds * 1000), [&](int rank) {
        auto next = std::make_shared<std::size_t>(0);
        return benchmark({.rank = rank,
                          .world_size = options.ranks,
                          .group = group,
                          .rounds = {.warm_up = 3, .timed = options.rounds},
                          .chunk_bytes = static_cast<std::size_t>(options.chunk_kib) << 10,
                          .next_exchange = [&exchanges, next,
                                            rank] { return exchanges[(*next)++].for_rank(rank); },
                          .peers = {}});
      });
  if (!samples) {
    throw CLI::RuntimeError(samples.error().describe(), 1);
  }
  return std::move(samples).value();
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
  const auto topology = Topology::single_node(options.ranks);
  if (!topology) {
    throw CLI::RuntimeError(topology.error().describe(), 1);
  }
  const OnDemandPlan plan(*topology, ModelSpec{.groups = {group}},
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
  for (const Accumulation accumulate : {Accumulation::arrival, Accumulation::reproducible}) {
    push.memory[to_string(accumulate)] = memory_a_shard_byte(options, group, accumulate);
  }
  print(push, options.json);
  print(describe(options, group, "push_minibatch", std::move(minibatches)), options.json);
}

}  // namespace

void add_bench(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* bench =
      app.add_subcommand("bench", "Measure an operation beside its peers and its limit");
  bench->require_subcommand(1);
  const auto add = [&](const char* name, const char* help, void (*run_it)(const Options&)) {
    CLI::App* command = bench->add_subcommand(name, help);
    command->add_option("--ranks", options->ranks, "ranks, each a process pinned to one core")
        ->capture_default_str()
        ->check(CLI::Range(1, 64));
    command->add_option("--mib", options->mib, "size of the unsharded group in MiB")
        ->capture_default_str()
        ->check(CLI::Range(1, 65536));
    command->add_option("--dtype", options->dtype, "compute dtype")
        ->capture_default_str()
        ->check(CLI::IsMember({"bfloat16", "float32"}));
    command->add_option("--rounds", options->rounds, "timed rounds after 3 of warm-up")
        ->capture_default_str()
        ->check(CLI::Range(1, 100000));
    command->add_option("--chunk-kib", options->chunk_kib, "accumulators under one lock, in KiB")
        ->capture_default_str()
        ->check(CLI::Range(1, 1 << 20));
    command->add_option("--limit-seconds", options->limit_seconds, "longest time for all of it")
        ->capture_default_str()
        ->check(CLI::Range(1, 86400));
    command->add_flag("--json", options->json, "one JSON object a case and line");
    command->callback([options, run_it] { run_it(*options); });
  };
  add("gather", "gather a group from every rank's published shard", &run_gather);
  add("push", "add a group's gradients to every owner's accumulators", &run_push);
}

}  // namespace headrace::cli
