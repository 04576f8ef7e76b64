#include "transport/mapped_transport.h"

#include <algorithm>
#include <utility>

#include "runtime/thread_stream.h"
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
    auto mapped = std::make_unique<MappedChannel>(config.identity.rank, peer, memory_,
                                                  memories_[static_cast<std::size_t>(peer)]->data(),
                                                  liveness_.get(), &waiter_);
    if (reach == Reach::rail) {
      channels_.push_back(std::make_unique<RailChannel>(std::move(mapped)));
    } else {
      channels_.push_back(std::move(mapped));
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

// What ends one stream ends the others, wherever they wait.
Result<std::unique_ptr<Stream>> MappedTransport::make_stream() {
  return std::unique_ptr<Stream>(std::make_unique<ThreadStream>(
      [liveness = liveness_.get()](const Error& error) { liveness->fail(error); }));
}

Result<std::shared_ptr<std::byte>> MappedTransport::allocate(std::size_t bytes) {
  HEADRACE_TRY_ASSIGN(Arena arena, Arena::anonymous(std::max<std::size_t>(bytes, 1)));
  auto owner = std::make_shared<Arena>(std::move(arena));
  return std::shared_ptr<std::byte>(owner, owner->data());
}

}  // namespace headrace
