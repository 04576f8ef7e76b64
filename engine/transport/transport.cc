#include "transport/transport.h"

namespace headrace {

Reach TransportConfig::reach(int peer) const {
  const int local = local_ranks == 0 ? identity.world_size : local_ranks;
  if (identity.rank / local == peer / local) {
    return Reach::node;
  }
  return identity.rank % local == peer % local ? Reach::rail : Reach::none;
}

}  // namespace headrace
