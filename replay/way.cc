#include "replay/way.h"

#include <fmt/format.h>

#include "base/named.h"

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
  if (const auto way = named(k_ways, name)) {
    return *way;
  }
  return operation_error(
      fmt::format("there is no mode '{}' to replay; known are {}", name, names_of(k_ways)));
}

}  // namespace headrace::replay
