#include "balance/pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/checked_math.h"
#include "base/named.h"

namespace headrace {
namespace {

constexpr std::array k_policies = {Oversize::error, Oversize::truncate, Oversize::drop,
                                   Oversize::split};

Status split(Pieces& result, std::size_t sample, std::int64_t length, std::int64_t longest) {
  const std::int64_t count = ceil_div(length, longest);
  if (count > k_most_split_pieces - static_cast<std::int64_t>(result.pieces.size())) {
    return operation_error(
        fmt::format("splitting samples into pieces of at most {} tokens makes more than {} pieces; "
                    "raise the cap",
                    longest, k_most_split_pieces));
  }
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t tokens = length / count + (i < length % count ? 1 : 0);
    result.pieces.push_back({.sample = sample, .begin = begin, .tokens = tokens});
    begin += tokens;
  }
  return {};
}

}  // namespace

const char* to_string(Oversize policy) {
  switch (policy) {
    case Oversize::error:
      return "error";
    case Oversize::truncate:
      return "truncate";
    case Oversize::drop:
      return "drop";
    case Oversize::split:
      return "split";
  }
  return "unknown";
}

Result<Oversize> parse_oversize(std::string_view name) {
  if (const auto policy = named(k_policies, name)) {
    return *policy;
  }
  return operation_error(fmt::format(
      "there is no oversize policy '{}'; known are error, truncate, drop and split", name));
}

Result<Pieces> pieces_under_cap(std::span<const std::int64_t> lengths, std::int64_t cap,
                                std::int64_t alignment, Oversize policy,
                                std::span<const std::int64_t> labels) {
  if (lengths.empty()) {
    return operation_error("there is nothing to balance: the list of lengths is empty");
  }
  if (cap < 1) {
    return operation_error(
        fmt::format("the token cap of a microbatch must be at least 1, not {}", cap));
  }
  if (alignment < 1 || alignment > cap) {
    return operation_error(fmt::format(
        "the alignment must lie between 1 and the cap of {} tokens, not {}", cap, alignment));
  }
  if (!labels.empty() && labels.size() != lengths.size()) {
    return operation_error(
        fmt::format("there are {} labels for {} lengths", labels.size(), lengths.size()));
  }
  const auto label = [&](std::size_t sample) {
    return labels.empty() ? static_cast<std::int64_t>(sample) : labels[sample];
  };
  const std::int64_t longest = cap / alignment * alignment;
  Pieces result;
  result.pieces.reserve(lengths.size());
  std::int64_t total = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::int64_t length = lengths[i];
    if (length < 1) {
      return operation_error(
          fmt::format("the sample at index {} has length {}; every sample needs at least 1 token",
                      label(i), length));
    }
    HEADRACE_TRY_ASSIGN(total, checked_add(total, length));
    if (length <= longest) {
      result.pieces.push_back({.sample = i, .begin = 0, .tokens = length});
      continue;
    }
    result.oversize.push_back(i);
    switch (policy) {
      case Oversize::error: {
        const std::string aligned =
            alignment > 1 ? fmt::format(" when aligned to {}", alignment) : std::string();
        return operation_error(fmt::format(
            "the sample at index {} has {} tokens, more than the cap of {} tokens a "
            "microbatch{}; raise the cap or choose an oversize policy: truncate, drop or split",
            label(i), length, cap, aligned));
      }
      case Oversize::truncate:
        result.pieces.push_back({.sample = i, .begin = 0, .tokens = longest});
        result.tokens_lost += length - longest;
        break;
      case Oversize::drop:
        result.tokens_lost += length;
        break;
      case Oversize::split:
        HEADRACE_TRY(split(result, i, length, longest));
        break;
    }
  }
  if (result.pieces.empty()) {
    return operation_error(fmt::format(
        "nothing is left to train on: all {} samples are longer than the cap of {} tokens "
        "and were dropped",
        lengths.size(), cap));
  }
  result.tokens = total - result.tokens_lost;
  return result;
}

}  // namespace headrace
