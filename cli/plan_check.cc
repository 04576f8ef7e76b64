#include "plan_check.h"

#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "options.h"
#include "plan/wave_check.h"

namespace headrace::cli {
namespace {

constexpr int k_most_nodes = 4096;
constexpr int k_most_local_ranks = 64;

struct Options {
  int local_ranks = 8;
  std::string nodes = "2:1024";
  bool json = false;
};

std::optional<int> parse_count(std::string_view text) {
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < 1 ||
      count > k_most_nodes) {
    return std::nullopt;
  }
  return count;
}

std::optional<IntRange> parse_range(std::string_view text) {
  const std::size_t colon = text.find(':');
  const auto first = parse_count(text.substr(0, colon));
  const auto last = colon == std::string_view::npos ? first : parse_count(text.substr(colon + 1));
  if (!first || !last || *last < *first) {
    return std::nullopt;
  }
  return IntRange{.first = *first, .last = *last};
}

// CLI11 takes the empty string as "valid".
std::string check_range(const std::string& text) {
  return parse_range(text)
             ? std::string()
             : fmt::format(
                   "{} is neither a number of nodes nor a range of them: give one from 1 "
                   "to {}, or A:B with A <= B, as in 2:1024",
                   text, k_most_nodes);
}

nlohmann::ordered_json to_json(const IntRange& range) { return {range.first, range.last}; }

nlohmann::ordered_json to_json(const WaveSweep& sweep, const WaveSweepResult& result) {
  return {{"local_ranks", sweep.local_ranks},
          {"nodes", to_json(sweep.nodes)},
          {"widths", to_json(sweep.widths)},
          {"transfers", to_json(sweep.transfers)},
          {"modes", {to_string(GradientMode::in_place), to_string(GradientMode::slot_reuse)}},
          {"passes", to_json(IntRange{.first = 1, .last = sweep.passes})},
          {"plans", result.plans()},
          {"accepted", result.accepted},
          {"rejected", result.rejected},
          {"first_rejection", result.first_rejection},
          {"checked", result.checked},
          {"failed", result.failed},
          {"failures", result.failures}};
}

void print(const WaveSweep& sweep, const WaveSweepResult& result) {
  fmt::print(
      "nodes {}:{} of {} ranks, waves of {}:{}, {}:{} transfers a round, in-place and slot-reuse\n",
      sweep.nodes.first, sweep.nodes.last, sweep.local_ranks, sweep.widths.first, sweep.widths.last,
      sweep.transfers.first, sweep.transfers.last);
  fmt::print("  plans     {:>9}\n  accepted  {:>9}\n  rejected  {:>9}{}{}\n", result.plans(),
             result.accepted, result.rejected, result.rejected > 0 ? "  such as: " : "",
             result.first_rejection);
  fmt::print(
      "  checked   {:>9}  accepted plans with 1 to {} passes: every contributor once, no stale "
      "block, no block missing\n  wrong     {:>9}\n",
      result.checked, sweep.passes, result.failed);
  for (const std::string& failure : result.failures) {
    fmt::print("    {}\n", failure);
  }
}

void run(const Options& options) {
  const WaveSweep sweep{.local_ranks = options.local_ranks,
                        .nodes = *parse_range(options.nodes),
                        .widths = {.first = 1, .last = options.local_ranks}};
  const auto result = sweep_waves(sweep);
  if (!result) {
    throw CLI::ValidationError("plan check", result.error().describe());
  }
  if (options.json) {
    fmt::print("{}\n", to_json(sweep, result.value()).dump(2));
  } else {
    print(sweep, result.value());
  }
  if (result.value().failed > 0) {
    throw CLI::RuntimeError(1);
  }
}

}  // namespace

void add_plan_check(CLI::App& plan) {
  auto options = std::make_shared<Options>();
  CLI::App* check = plan.add_subcommand(
      "check", "Prove the waves and rounds of every reduce-scatter plan in a range of worlds");
  check->add_option("--local", options->local_ranks, "ranks a node")
      ->capture_default_str()
      ->check(whole_number(1, k_most_local_ranks));
  check->add_option("--nodes", options->nodes, "number of nodes, or a range A:B")
      ->capture_default_str()
      ->check(CLI::Validator(check_range, "NODES|A:B"));
  check->add_flag("--json", options->json, "One JSON object");
  check->callback([options] { run(*options); });
}

}  // namespace headrace::cli
