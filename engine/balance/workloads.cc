#include "balance/workloads.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "balance/portable_math.h"
#include "base/named.h"

namespace headrace {
namespace {

constexpr std::array k_workloads = {Workload::longalign,        Workload::longalign_heavy,
                                    Workload::longalign_eighth, Workload::swe_smith,
                                    Workload::swe_smith_32k,    Workload::rollouts,
                                    Workload::short_sft};

constexpr double k_shortest_longalign = 8192.0;
constexpr double k_longest_longalign = 65536.0;
constexpr std::int64_t k_longest_swe_smith = 156'000;
constexpr std::int64_t k_training_length = 32'768;
constexpr std::int64_t k_longest_rollout = 16'384;
constexpr std::int64_t k_longest_sft = 8192;
constexpr double k_share_at_longest_sft = 0.02;

/// Uniform in [0, 1).
double unit(SplitMix64& random) { return static_cast<double>(random.next() >> 11) * 0x1p-53; }

/// Of mean 0 and variance 1, by Marsaglia's polar method.
double normal(SplitMix64& random) {
  while (true) {
    const double x = 2.0 * unit(random) - 1.0;
    const double y = 2.0 * unit(random) - 1.0;
    const double square = x * x + y * y;
    if (square > 0.0 && square < 1.0) {
      return x * std::sqrt(-2.0 * portable_log(square) / square);
    }
  }
}

std::int64_t pareto(SplitMix64& random, double alpha) {
  const double tail =
      1.0 - portable_exp(alpha * portable_log(k_shortest_longalign / k_longest_longalign));
  const double left = 1.0 - unit(random) * tail;
  return static_cast<std::int64_t>(k_shortest_longalign *
                                   portable_exp(-portable_log(left) / alpha));
}

std::int64_t log_normal(SplitMix64& random, double mu, double sigma, std::int64_t longest) {
  const double length = portable_exp(mu + sigma * normal(random));
  return static_cast<std::int64_t>(std::clamp(length, 1.0, static_cast<double>(longest)));
}

}  // namespace

const char* to_string(Workload workload) {
  switch (workload) {
    case Workload::longalign:
      return "longalign";
    case Workload::longalign_heavy:
      return "longalign-heavy";
    case Workload::longalign_eighth:
      return "longalign-eighth";
    case Workload::swe_smith:
      return "swe-smith";
    case Workload::swe_smith_32k:
      return "swe-smith-32k";
    case Workload::rollouts:
      return "rollouts";
    case Workload::short_sft:
      return "short-sft";
  }
  return "unknown";
}

Result<Workload> parse_workload(std::string_view name) {
  if (const auto workload = named(k_workloads, name)) {
    return *workload;
  }
  return operation_error(
      fmt::format("there is no workload '{}'; known are {}", name, names_of(k_workloads)));
}

std::span<const Workload> workloads() { return k_workloads; }

std::int64_t draw_length(Workload workload, SplitMix64& random) {
  switch (workload) {
    case Workload::longalign:
      return pareto(random, 1.55);
    case Workload::longalign_heavy:
      return pareto(random, 0.34);
    case Workload::longalign_eighth:
      return pareto(random, 1.55) / 8;
    case Workload::swe_smith:
      return log_normal(random, 10.28, 0.71, k_longest_swe_smith);
    case Workload::swe_smith_32k:
      return log_normal(random, 10.28, 0.71, k_training_length);
    case Workload::rollouts:
      return log_normal(random, portable_log(6000.0), 0.75, k_longest_rollout);
    case Workload::short_sft: {
      // 1.394: 0.9 / 0.98 of a normal distribution lies below, so that p90 is that of all samples.
      const double sigma = portable_log(1058.0 / 357.0) / 1.394;
      return unit(random) < k_share_at_longest_sft
                 ? k_longest_sft
                 : log_normal(random, portable_log(357.0), sigma, k_longest_sft);
    }
  }
  return 1;
}

std::vector<std::int64_t> workload_lengths(Workload workload, std::size_t count,
                                           std::uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<std::int64_t> lengths(count);
  std::ranges::generate(lengths, [&] { return draw_length(workload, random); });
  return lengths;
}

}  // namespace headrace
