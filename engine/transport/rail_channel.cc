#include "transport/rail_channel.h"

#include <fmt/format.h>

namespace headrace {

Status RailChannel::refuse(std::string_view operation) const {
  return operation_error(fmt::format(
      "{} from rank {} of another node: a rail carries put and signal alone", operation, peer()));
}

Status NoChannel::refuse() const {
  return operation_error(
      fmt::format("rank {} has no channel to rank {}, which is on another node and another rail",
                  rank_, peer_));
}

}  // namespace headrace
