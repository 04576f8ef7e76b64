#include "transport/shm/shm_transport.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "runtime/arena.h"
#include "transport/host_wiring.h"
#include "transport/mapped_transport.h"

namespace headrace {
namespace {

constexpr Capability k_capability{.get = true, .put = true, .accumulate = true, .processes = true};

/// The transport of a rank that has `mine` and what wiring brought.
Result<std::unique_ptr<Transport>> wired(const TransportConfig& config, std::shared_ptr<Arena> mine,
                                         std::vector<HostLink> links) {
  std::vector<std::shared_ptr<Arena>> memories(
      static_cast<std::size_t>(config.identity.world_size));
  memories[static_cast<std::size_t>(config.identity.rank)] = std::move(mine);
  std::vector<LivenessPeer> peers;
  for (const int rank : config.within_reach()) {
    HostLink& link = links[static_cast<std::size_t>(rank)];
    if (link.arena == nullptr) {
      HEADRACE_TRY_ASSIGN(Arena arena, Arena::map(link.memory, config.memory_bytes));
      link.arena = std::make_shared<Arena>(std::move(arena));
    }
    memories[static_cast<std::size_t>(rank)] = std::move(link.arena);
    peers.push_back({.rank = rank, .page = nullptr, .death = std::move(link.death)});
  }
  return MappedTransport::make(config, k_capability, std::move(memories), std::move(peers));
}

}  // namespace

Result<Capability> probe_shm() {
  HEADRACE_TRY(host_identity());
  HEADRACE_TRY(SharedMemory::create("headrace-probe", 4096));
  HEADRACE_TRY(HostListener::open());
  return k_capability;
}

Result<std::unique_ptr<Transport>> make_shm_transport(const TransportConfig& config,
                                                      const Exchange& exchange) {
  auto mine =
      SharedMemory::create(fmt::format("headrace-{}", config.identity.rank), config.memory_bytes);
  auto links = join_host(config, exchange,
                         mine ? Result<HostOffer>(HostOffer{.memory = &*mine}) : mine.error());
  auto transport = links ? wired(config, mine->arena, std::move(links).value())
                         : Result<std::unique_ptr<Transport>>(links.error());
  if (!transport && mine) {
    Liveness::refuse(config.identity.rank, reinterpret_cast<LivenessPage*>(mine->arena->data()),
                     transport.error());
  }
  return transport;
}

}  // namespace headrace
