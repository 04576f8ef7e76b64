#include "plan_show.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "options.h"
#include "plan/schedule_svg.h"
#include "plan/schedule_text.h"

namespace headrace::cli {
namespace {

/// More would fill no page.
constexpr int k_most = 64;
const char* const k_all_gather = "all-gather";
const char* const k_reduce_scatter = "reduce-scatter";
const char* const k_text = "text";
const char* const k_svg = "svg";

struct Options {
  std::string collective = k_all_gather;
  std::string format = k_text;
  int nodes = 1;
  int local_ranks = 1;
  std::optional<int> rank;
  std::optional<int> width;
  int transfers = 4;
};

Result<std::string> show(const Options& options) {
  HEADRACE_TRY_ASSIGN(const Topology topology, Topology::make(options.nodes, options.local_ranks));
  if (options.rank && *options.rank >= topology.world_size()) {
    return operation_error(fmt::format("--rank: {} is not one of the {} ranks, 0 to {}",
                                       *options.rank, topology.world_size(),
                                       topology.world_size() - 1));
  }
  const bool text = options.format == k_text;
  if (options.collective == k_all_gather) {
    if (!text) {
      return all_gather_svg(topology);
    }
    return options.rank ? all_gather_text(topology, *options.rank) : all_gather_text(topology);
  }
  HEADRACE_TRY_ASSIGN(
      const WavePlan plan,
      WavePlan::make(topology, {.width = options.width.value_or(options.local_ranks),
                                .transfers = options.transfers}));
  const int node = topology.node_of(options.rank.value_or(topology.world_size() - 1));
  if (!text) {
    return reduce_scatter_svg(plan, node);
  }
  return options.rank ? reduce_scatter_rank_text(plan, *options.rank)
                      : reduce_scatter_text(plan, node);
}

}  // namespace

void add_plan_show(CLI::App& plan) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      plan.add_subcommand("show", "Who sends what to whom in which round, as a table or a picture");
  command->add_option("--collective", options->collective, "which collective")
      ->capture_default_str()
      ->check(CLI::IsMember({k_all_gather, k_reduce_scatter}));
  command->add_option("--nodes", options->nodes, "number of nodes M")
      ->required()
      ->check(whole_number(1, k_most));
  command->add_option("--local", options->local_ranks, "ranks a node L")
      ->required()
      ->check(whole_number(1, k_most));
  command
      ->add_option("--rank", options->rank,
                   "text: this rank's part; picture of a reduce-scatter: its node, else the last")
      ->check(whole_number(0, k_most * k_most - 1));
  command->add_option("--width", options->width, "contributors a wave; L if not given")
      ->check(whole_number(1, k_most));
  command->add_option("--transfers", options->transfers, "transfers a round, k")
      ->capture_default_str()
      ->check(whole_number(1, k_most));
  command->add_option("--format", options->format, "table or picture")
      ->capture_default_str()
      ->check(CLI::IsMember({k_text, k_svg}));
  command->callback([options] {
    const Result<std::string> shown = show(*options);
    if (!shown) {
      throw CLI::ValidationError("plan show", shown.error().message);
    }
    fmt::print("{}", *shown);
  });
}

}  // namespace headrace::cli
