#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headrace {

/// Tokens [begin, begin + tokens) of a sample. Normally all of it; less where a sample longer than
/// the cap was truncated or split.
struct SamplePiece {
  std::size_t sample = 0;
  std::int64_t begin = 0;
  std::int64_t tokens = 0;

  bool operator==(const SamplePiece&) const = default;
};

/// What to do with a sample longer than the cap.
enum class Oversize : std::uint8_t {
  error,     ///< refuse the whole plan
  truncate,  ///< train on its first tokens; the rest is lost
  drop,      ///< leave it out; all of it is lost
  split,     ///< train on equal pieces, each a sample of its own; no token is lost, context across
             ///< pieces is
};

const char* to_string(Oversize policy);
Result<Oversize> parse_oversize(std::string_view name);

/// Splitting makes no more pieces than this: a cap far below the lengths is a mistake.
inline constexpr std::int64_t k_most_split_pieces = 1 << 24;

/// What is to be packed, in the order of the samples.
struct Pieces {
  std::vector<SamplePiece> pieces;
  std::vector<std::size_t> oversize;  ///< samples that the policy changed, ascending
  std::int64_t tokens = 0;            ///< of all pieces
  std::int64_t tokens_lost = 0;

  bool operator==(const Pieces&) const = default;
};

/// Samples of `lengths` tokens under a hard cap of tokens, each length counted as rounded up to a
/// multiple of `alignment`. Errors: no samples, a cap or alignment below 1, an alignment above the
/// cap, a length below 1 (names the index), a sample over the cap under Oversize::error (names
/// index, length and cap), nothing left, more than
/// k_most_split_pieces under Oversize::split.
/// Where `labels` are given, one a sample, errors name those instead of indices.
Result<Pieces> pieces_under_cap(std::span<const std::int64_t> lengths, std::int64_t cap,
                                std::int64_t alignment, Oversize policy,
                                std::span<const std::int64_t> labels = {});

}  // namespace headrace
