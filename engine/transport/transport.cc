#include "transport/transport.h"

namespace headrace {

Reach TransportConfig::reach(int peer) const {
  const int local = local_ranks == 0 ? identity.world_size : local_ranks;
  if (identity.rank / local == peer / local) {
    return Reach::node;
  }
  return identity.rank % local == peer % local ? Reach::rail : Reach::none;
}

std::vector<int> TransportConfig::within_reach() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < identity.world_size; ++rank) {
    if (rank != identity.rank && reach(rank) != Reach::none) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

}  // namespace headrace
