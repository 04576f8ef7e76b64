#include "replay/way.h"

#include <fmt/format.h>

#include <string>

namespace headrace::replay {

const char* to_string(Way way) {
  switch (way) {
    case Way::packed:
      return "packed";
    case Way::lockstep:
      return "lockstep";
    case Way::on_demand:
      return "on-demand";
  }
  return "unknown";
}

Result<Way> parse_way(std::string_view name) {
  std::string known;
  for (const Way way : k_ways) {
    if (name == to_string(way)) {
      return way;
    }
    known += (known.empty() ? "" : ", ") + std::string(to_string(way));
  }
  return operation_error(fmt::format("there is no mode '{}' to replay; known are {}", name, known));
}

}  // namespace headrace::replay
