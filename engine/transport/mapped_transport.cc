#include "transport/mapped_transport.h"

#include <utility>

#include "transport/mapped_channel.h"
#include "transport/rail_channel.h"

namespace headrace {

MappedTransport::MappedTransport(const TransportConfig& config, Capability capability,
                                 std::vector<std::shared_ptr<Arena>> memories,
                                 std::unique_ptr<Liveness> liveness)
    : memories_(std::move(memories)),
      memory_(memories_[static_cast<std::size_t>(config.identity.rank)]->data()),
      memory_owner_(memories_[static_cast<std::size_t>(config.identity.rank)]),
      capability_(capability),
      liveness_(std::move(liveness)),
      waiter_(liveness_.get(), config.wait, config.interrupted) {
  for (int peer = 0; peer < config.identity.world_size; ++peer) {
    const Reach reach = config.reach(peer);
    if (reach == Reach::none) {
      channels_.push_back(std::make_unique<NoChannel>(config.identity.rank, peer));
      continue;
    }
    const MappedChannel mapped(config.identity.rank, peer, memory_,
                               memories_[static_cast<std::size_t>(peer)]->data(), liveness_.get(),
                               &waiter_);
    if (reach == Reach::rail) {
      channels_.push_back(std::make_unique<RailChannel>(mapped));
    } else {
      channels_.push_back(std::make_unique<MappedChannel>(mapped));
    }
  }
}

Result<std::unique_ptr<Transport>> MappedTransport::make(
    const TransportConfig& config, Capability capability,
    std::vector<std::shared_ptr<Arena>> memories, std::vector<LivenessPeer> peers) {
  const auto page = [&memories](int rank) {
    return reinterpret_cast<LivenessPage*>(memories[static_cast<std::size_t>(rank)]->data());
  };
  for (LivenessPeer& peer : peers) {
    peer.page = page(peer.rank);
  }
  HEADRACE_TRY_ASSIGN(auto liveness,
                      Liveness::start(config.identity.rank, page(config.identity.rank),
                                      std::move(peers), config.liveness));
  return std::unique_ptr<Transport>(
      new MappedTransport(config, capability, std::move(memories), std::move(liveness)));
}

}  // namespace headrace
