#include "transport/bootstrap.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace headrace {
namespace {

Error differs(int rank, const char* property, const std::string& theirs, const std::string& ours) {
  return Error{.scope = Scope::session,
               .message = fmt::format(
                   "rank {} has {} {} where this rank has {}; all ranks must agree, nothing was "
                   "transferred",
                   rank, property, theirs, ours),
               .rank = rank};
}

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> found;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    if (end > begin) {
      found.push_back(text.substr(begin, end - begin));
    }
    begin = end + 1;
  }
  return found;
}

// The first "name=value" that differs, so that an error does not print two long lines to compare by
// eye.
std::pair<std::string, std::string> first_difference(const std::string& theirs,
                                                     const std::string& ours) {
  const auto a = words(theirs);
  const auto b = words(ours);
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const std::string x = i < a.size() ? a[i] : "(nothing)";
    const std::string y = i < b.size() ? b[i] : "(nothing)";
    if (x != y) {
      return {x, y};
    }
  }
  return {theirs, ours};
}

}  // namespace

std::string encode(const Advertisement& advertisement) {
  const Identity& identity = advertisement.identity;
  return nlohmann::json{{"rank", identity.rank},
                        {"world_size", identity.world_size},
                        {"version", identity.version},
                        {"fingerprint", identity.fingerprint},
                        {"model", identity.model},
                        {"model_text", identity.model_text},
                        {"memory_bytes", advertisement.memory_bytes},
                        {"host", advertisement.host},
                        {"address", advertisement.address},
                        {"failure", advertisement.failure}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<Advertisement> decode(const std::string& blob) {
  const auto json = nlohmann::json::parse(blob, nullptr, /*allow_exceptions=*/false);
  Advertisement decoded;
  const auto read = [&json](const char* key, auto& value) {
    if (json.is_object() && json.contains(key)) {
      const auto& field = json[key];
      if constexpr (std::is_same_v<std::remove_reference_t<decltype(value)>, std::string>) {
        if (field.is_string()) {
          value = field.template get<std::string>();
          return true;
        }
      } else if (field.is_number_integer()) {
        value = field.template get<std::remove_reference_t<decltype(value)>>();
        return true;
      }
    }
    return false;
  };
  if (read("rank", decoded.identity.rank) && read("world_size", decoded.identity.world_size) &&
      read("version", decoded.identity.version) &&
      read("fingerprint", decoded.identity.fingerprint) && read("model", decoded.identity.model) &&
      read("model_text", decoded.identity.model_text) &&
      read("memory_bytes", decoded.memory_bytes) && read("host", decoded.host) &&
      read("address", decoded.address) && read("failure", decoded.failure)) {
    return decoded;
  }
  return session_error(
      "a peer sent something at wiring that is no Headrace advertisement; do all ranks run the "
      "same "
      "version, and is the store's key used by nobody else?");
}

Status compare(const Advertisement& mine, std::span<const Advertisement> all) {
  const Identity& ours = mine.identity;
  for (const Advertisement& theirs : all) {
    if (!theirs.failure.empty()) {
      const int rank = theirs.identity.rank;
      return Error{.scope = Scope::session,
                   .message = fmt::format("rank {} cannot join: {}", rank, theirs.failure),
                   .rank = rank};
    }
  }
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const Identity& theirs = all[rank].identity;
    const int expected = static_cast<int>(rank);
    if (theirs.world_size != ours.world_size) {
      return differs(expected, "a world size of", std::to_string(theirs.world_size),
                     std::to_string(ours.world_size));
    }
    if (theirs.rank != expected) {
      return session_error(
          fmt::format("the process at place {} says it is rank {}; two processes were given the "
                      "same rank",
                      expected, theirs.rank));
    }
    if (theirs.version != ours.version) {
      return differs(expected, "Headrace", theirs.version, ours.version);
    }
    if (theirs.fingerprint != ours.fingerprint) {
      const auto [x, y] = first_difference(theirs.fingerprint, ours.fingerprint);
      return differs(expected, "the setting", x, y);
    }
    if (theirs.model != ours.model) {
      return differs(expected, "a different model:",
                     fmt::format("{} (digest {:016x})", theirs.model_text, theirs.model),
                     fmt::format("{} (digest {:016x})", ours.model_text, ours.model));
    }
    if (all[rank].memory_bytes != mine.memory_bytes) {
      return differs(expected, "an arena of", std::to_string(all[rank].memory_bytes),
                     std::to_string(mine.memory_bytes));
    }
    if (all[rank].host != mine.host) {
      return session_error(
          fmt::format("rank {} is on another host ({}) than this rank ({}); this transport joins "
                      "ranks of one host",
                      expected, all[rank].host, mine.host));
    }
  }
  return {};
}

Result<std::vector<Advertisement>> advertise(const Advertisement& mine, const Exchange& exchange,
                                             Milliseconds limit) {
  HEADRACE_TRY_ASSIGN(const std::vector<std::string> blobs, exchange(encode(mine), limit));
  if (blobs.size() != static_cast<std::size_t>(mine.identity.world_size)) {
    return session_error(fmt::format("the exchange returned {} blobs for a world of {} ranks",
                                     blobs.size(), mine.identity.world_size));
  }
  std::vector<Advertisement> all;
  for (const std::string& blob : blobs) {
    HEADRACE_TRY_ASSIGN(Advertisement decoded, decode(blob));
    all.push_back(std::move(decoded));
  }
  HEADRACE_TRY(compare(mine, all));
  return all;
}

}  // namespace headrace
