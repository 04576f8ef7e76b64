#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace headrace {

/// An all-gather of one small blob a rank, in rank order, within `limit`: all that wiring needs
/// from outside.
using Exchange =
    std::function<Result<std::vector<std::string>>(const std::string& mine, Milliseconds limit)>;

/// Who a rank is and what it believes. Compared when peers are wired.
struct Identity {
  int rank = 0;
  int world_size = 1;
  std::string version;  ///< of the engine
  std::string
      fingerprint;  ///< versions and options of the caller, "name=value" separated by spaces
  std::uint64_t model = 0;  ///< ModelSpec::digest()
  std::string model_text;   ///< a summary to name in an error, such as "31 groups, 291 parameters"
};

/// What a rank publishes at wiring: its identity and how to reach it.
struct Advertisement {
  Identity identity;
  std::uint64_t memory_bytes = 0;
  std::string host;     ///< identifies the memory domain
  std::string address;  ///< the backend's own
  std::string failure;  ///< why this rank cannot join; empty where it can
};

std::string encode(const Advertisement& advertisement);
Result<Advertisement> decode(const std::string& blob);

/// Error that names the first rank and property that differ from ours; success where all can talk.
Status compare(const Advertisement& mine, std::span<const Advertisement> all);

/// Exchanges advertisements and compares them. A rank that cannot join must call this too, with its
/// failure, so that its peers learn the reason at once instead of waiting for it.
Result<std::vector<Advertisement>> advertise(const Advertisement& mine, const Exchange& exchange,
                                             Milliseconds limit);

}  // namespace headrace
