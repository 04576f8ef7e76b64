#include "plan_memory.h"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "options.h"
#include "plan/lockstep_memory.h"
#include "plan/sizing.h"

namespace headrace::cli {
namespace {

constexpr std::array k_printed{Region::landing, Region::stage,  Region::resident,
                               Region::staging, Region::outbox, Region::inbox,
                               Region::spare,   Region::output, Region::gradient};

struct Options {
  int nodes = 1;
  int local_ranks = 1;
  int shard_mib = 1;
  int width = 0;
  int transfers = Calibration{}.most_transfers;
  int passes = WaveOptions{}.passes;
  int staging_slots = MemoryRequest{}.staging_slots;
  std::string mode = to_string(GradientMode::in_place);
  std::string gradient = "bf16";
  std::string gather;
  bool cast = false;
  bool json = false;
};

struct Report {
  Options options;
  WaveOptions waves;
  int generations = 0;
  int outbox_blocks = 0;
  LockstepMemory memory;

  double in_ns(std::size_t bytes) const {
    return static_cast<double>(bytes) / static_cast<double>(memory.unsharded_bytes);
  }
};

DType dtype_of(const std::string& name) {
  return name == "fp32" ? DType::float32 : DType::bfloat16;
}

Report compute(const Options& options) {
  const Topology topology = value_or_throw(Topology::make(options.nodes, options.local_ranks));
  const WavePlan waves = value_or_throw(
      WavePlan::make(topology, {.width = options.width > 0 ? options.width : options.local_ranks,
                                .transfers = options.transfers,
                                .passes = options.passes}));
  MemoryRequest request{.gather = dtype_of(options.gather),
                        .gradient = dtype_of(options.gradient),
                        .cast = options.cast,
                        .staging_slots = options.staging_slots,
                        .mode = options.mode == to_string(GradientMode::slot_reuse)
                                    ? GradientMode::slot_reuse
                                    : GradientMode::in_place};
  request.shard_elements =
      (static_cast<std::size_t>(options.shard_mib) << 20) / item_size(request.gather);
  return {.options = options,
          .waves = waves.options(),
          .generations = waves.generations(),
          .outbox_blocks = waves.outbox_blocks(request.mode),
          .memory = value_or_throw(lockstep_memory(waves, request))};
}

nlohmann::ordered_json to_json(const Report& report) {
  const LockstepMemory& memory = report.memory;
  const auto amount = [&report](std::size_t bytes) {
    return nlohmann::ordered_json{{"bytes", bytes}, {"ns", report.in_ns(bytes)}};
  };
  auto regions = nlohmann::ordered_json::array();
  for (const Region region : k_printed) {
    const RegionSize& size = memory[region];
    regions.push_back({{"name", to_string(region)},
                       {"bytes_a_bank", size.bytes},
                       {"banks", size.banks},
                       {"bytes", size.total()},
                       {"ns", report.in_ns(size.total())}});
  }
  return {{"nodes", report.options.nodes},
          {"local_ranks", report.options.local_ranks},
          {"shard_mib", report.options.shard_mib},
          {"mode", report.options.mode},
          {"gather", report.options.gather},
          {"gradient", report.options.gradient},
          {"cast", report.options.cast},
          {"width", report.waves.width},
          {"transfers", report.waves.transfers},
          {"passes", report.waves.passes},
          {"generations", report.generations},
          {"outbox_blocks", report.outbox_blocks},
          {"regions", std::move(regions)},
          {"unsharded", amount(memory.unsharded_bytes)},
          {"reduce_scatter", amount(memory.reduce_scatter_bytes)},
          {"reduce_scatter_bound", amount(memory.reduce_scatter_bound)},
          {"backward", amount(memory.backward_bytes)},
          {"backward_bound", amount(memory.backward_bound)},
          {"stock", amount(memory.stock_bytes)}};
}

void print(const Report& report) {
  const LockstepMemory& memory = report.memory;
  const Options& options = report.options;
  fmt::print(
      "{} nodes of {}, shard S = {} MiB of {}, {} gradients {}, waves of {}, k = {}, {} pass{}\n",
      options.nodes, options.local_ranks, options.shard_mib, options.gather, options.gradient,
      options.mode, report.waves.width, report.waves.transfers, report.waves.passes,
      report.waves.passes == 1 ? "" : "es");
  fmt::print("  {:<16} {:>5} {:>16} {:>16} {:>8}\n", "region", "banks", "bytes a bank", "bytes",
             "NS");
  for (const Region region : k_printed) {
    const RegionSize& size = memory[region];
    fmt::print("  {:<16} {:>5} {:>16} {:>16} {:>8.3f}\n", to_string(region), size.banks, size.bytes,
               size.total(), report.in_ns(size.total()));
  }
  const auto line = [&report](const char* name, std::size_t bytes, std::size_t bound) {
    fmt::print("  {:<39} {:>16} {:>8.3f}  bound {:.3f}\n", name, bytes, report.in_ns(bytes),
               report.in_ns(bound));
  };
  line("reduce-scatter: staging to spare", memory.reduce_scatter_bytes,
       memory.reduce_scatter_bound);
  line("live in a layer's backward", memory.backward_bytes, memory.backward_bound);
  fmt::print("  {:<39} {:>16} {:>8.3f}\n", "stock FSDP2 in a layer's backward", memory.stock_bytes,
             report.in_ns(memory.stock_bytes));
}

void run(Options options) {
  if (options.gather.empty()) {
    options.gather = options.gradient;
  }
  const Report report = compute(options);
  if (options.json) {
    fmt::print("{}\n", to_json(report).dump(2));
  } else {
    print(report);
  }
}

}  // namespace

void add_plan_memory(CLI::App& plan) {
  auto options = std::make_shared<Options>();
  CLI::App* memory = plan.add_subcommand(
      "memory", "What lockstep takes of a rank's memory, by region, beside stock FSDP2");
  const auto add = [memory](const char* name, int& value, const char* help, int most) {
    return memory->add_option(name, value, help)->check(whole_number(1, most));
  };
  add("--nodes", options->nodes, "number of nodes M", 1 << 16)->required();
  add("--local", options->local_ranks, "ranks a node L", 1 << 10)->required();
  add("--shard-mib", options->shard_mib, "shard S of the largest group, in the gather dtype",
      1 << 20)
      ->required();
  memory->add_option("--mode", options->mode, "where gradients are read")
      ->capture_default_str()
      ->check(
          CLI::IsMember({to_string(GradientMode::in_place), to_string(GradientMode::slot_reuse)}));
  memory->add_option("--gradient", options->gradient, "dtype of the gradients")
      ->capture_default_str()
      ->check(CLI::IsMember({"bf16", "fp32"}));
  memory
      ->add_option("--gather", options->gather,
                   "dtype in which parameters travel and are used; that of the gradients if not "
                   "given")
      ->check(CLI::IsMember({"bf16", "fp32"}));
  memory->add_flag("--cast", options->cast, "the shard has another dtype than that");
  add("--width", options->width, "contributors a wave; L if not given", 1 << 10);
  add("--transfers", options->transfers, "transfers a round, k", 1 << 10)->capture_default_str();
  add("--passes", options->passes, "passes", 1 << 10)->capture_default_str();
  add("--staging-slots", options->staging_slots, "staging slots", 1 << 10)->capture_default_str();
  memory->add_flag("--json", options->json, "One JSON object");
  memory->callback([options] { run(*options); });
}

}  // namespace headrace::cli
