#include "plan/topology.h"

#include <fmt/format.h>

namespace headrace {

Result<Topology> Topology::make(int nodes, int local_ranks) {
  if (nodes < 1 || local_ranks < 1) {
    return operation_error(fmt::format(
        "a topology needs at least one node and one rank a node, not {} nodes of {} ranks", nodes,
        local_ranks));
  }
  return Topology(nodes, local_ranks);
}

std::vector<int> Topology::rotation(int self) const {
  std::vector<int> order;
  order.reserve(static_cast<std::size_t>(world_size()));
  for (int step = 0; step < world_size(); ++step) {
    order.push_back((self + step) % world_size());
  }
  return order;
}

}  // namespace headrace
