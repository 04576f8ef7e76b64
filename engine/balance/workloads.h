#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "balance/shuffle.h"
#include "base/result.h"

namespace headrace {

/// Synthetic sample lengths that look like those of real training sets, in tokens.
enum class Workload : std::uint8_t {
  longalign,         ///< truncated Pareto on [8192, 65536], alpha 1.55: mean 16k, median 12.5k
  longalign_heavy,   ///< the same with alpha 0.34, a second fit: mean 24.5k
  longalign_eighth,  ///< longalign cut to one eighth: at most 8k, mean 2k
  swe_smith,         ///< log-normal, mu 10.28, sigma 0.71, at most 156,000
  swe_smith_32k,     ///< the same, cut at a training length of 32,768
  rollouts,          ///< log-normal, median 6,000, sigma 0.75; what is longer ends at 16,384
  short_sft,         ///< log-normal, median 357, p90 1,058; one sample in fifty has 8,192
};

/// Names as users write them: longalign, longalign-heavy, longalign-eighth, swe-smith,
/// swe-smith-32k, rollouts, short-sft.
const char* to_string(Workload workload);
Result<Workload> parse_workload(std::string_view name);
/// All of them, in the order above.
std::span<const Workload> workloads();

/// The next length, at least 1. The same numbers on every platform.
std::int64_t draw_length(Workload workload, SplitMix64& random);

/// `count` lengths that depend on the workload and the seed alone; a longer list begins with the
/// shorter one.
std::vector<std::int64_t> workload_lengths(Workload workload, std::size_t count,
                                           std::uint64_t seed);

}  // namespace headrace
