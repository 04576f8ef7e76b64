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

struct Prepared {
  SharedMemory memory;
  HostListener listener;
};

Result<Prepared> prepare(const TransportConfig& config) {
  HEADRACE_TRY_ASSIGN(
      SharedMemory memory,
      SharedMemory::create(fmt::format("headrace-{}", config.identity.rank), config.memory_bytes));
  HEADRACE_TRY_ASSIGN(HostListener listener, HostListener::open());
  return Prepared{.memory = std::move(memory), .listener = std::move(listener)};
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
  HEADRACE_TRY_ASSIGN(std::string host, host_identity());
  Advertisement advertisement{.identity = config.identity,
                              .memory_bytes = config.memory_bytes,
                              .host = std::move(host),
                              .address = "",
                              .failure = ""};
  auto prepared = prepare(config);
  if (prepared) {
    advertisement.address = prepared->listener.address();
  } else {
    advertisement.failure = prepared.error().message;
  }
  auto advertised = advertise(advertisement, exchange, config.bootstrap);
  if (!prepared) {
    return std::move(prepared).error();
  }
  HEADRACE_TRY_ASSIGN(const auto all, std::move(advertised));
  SharedMemory& mine = prepared->memory;
  std::vector<int> within_reach;
  for (int rank = 0; rank < config.identity.world_size; ++rank) {
    if (rank != config.identity.rank && config.reach(rank) != Reach::none) {
      within_reach.push_back(rank);
    }
  }
  HEADRACE_TRY_ASSIGN(auto links, prepared->listener.wire(config.identity.rank, within_reach, all,
                                                          {.memory = &mine}, config.bootstrap));

  std::vector<std::shared_ptr<Arena>> memories(
      static_cast<std::size_t>(config.identity.world_size));
  memories[static_cast<std::size_t>(config.identity.rank)] = mine.arena;
  std::vector<LivenessPeer> peers;
  for (const int rank : within_reach) {
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

}  // namespace headrace
