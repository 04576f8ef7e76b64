#include "collective/gather.h"

#include <vector>

#include "collective/publish.h"

namespace headrace {

Status gather(const OnDemand& on_demand, const BracketDigest& digest, std::size_t group,
              std::span<void* const> landings) {
  const OnDemandPlan& plan = on_demand.plan;
  const AddressMap& map = plan.map(group);
  for (const int owner : plan.topology().rotation(on_demand.rank)) {
    HEADRACE_TRY(wait_for_published(on_demand, digest, owner, group));
    std::vector<Piece> pieces;
    pieces.reserve(landings.size());
    for (std::size_t p = 0; p < landings.size(); ++p) {
      pieces.push_back(
          {.remote_offset = plan.published_shard_offset(group) + map.published_offset(p),
           .local = static_cast<std::byte*>(landings[p]) + map.landing_offset(p, owner),
           .bytes = map.block_bytes(p)});
    }
    HEADRACE_TRY(on_demand.transport.channel(owner).get(on_demand.stream, pieces));
  }
  return {};
}

}  // namespace headrace
