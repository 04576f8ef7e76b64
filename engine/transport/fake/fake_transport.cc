#include "transport/fake/fake_transport.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/fake/faulty_channel.h"
#include "transport/mapped_transport.h"

namespace headrace {
namespace {

class FaultyTransport final : public Transport {
 public:
  FaultyTransport(const Identity& identity, std::unique_ptr<Transport> inner,
                  const FaultPlan& faults)
      : inner_(std::move(inner)) {
    for (int peer = 0; peer < identity.world_size; ++peer) {
      channels_.emplace_back(identity.rank, &inner_->channel(peer), faults);
    }
  }

  Capability capability() const override { return inner_->capability(); }
  std::byte* at(std::size_t offset) override { return inner_->at(offset); }
  std::shared_ptr<const void> memory_owner() const override { return inner_->memory_owner(); }
  Channel& channel(int peer) override { return channels_[static_cast<std::size_t>(peer)]; }
  Result<std::unique_ptr<Stream>> make_stream() override { return inner_->make_stream(); }
  Result<std::shared_ptr<std::byte>> allocate(std::size_t bytes) override {
    return inner_->allocate(bytes);
  }
  const Kernels& kernels() const override { return inner_->kernels(); }
  Liveness& liveness() override { return inner_->liveness(); }
  Waiter& waiter() override { return inner_->waiter(); }

 private:
  std::unique_ptr<Transport> inner_;
  std::vector<FaultyChannel> channels_;
};

}  // namespace

Result<std::vector<std::shared_ptr<Arena>>> FakeHub::meet(int rank, std::shared_ptr<Arena> mine,
                                                          Milliseconds limit) {
  std::unique_lock lock(mutex_);
  memories_[static_cast<std::size_t>(rank)] = std::move(mine);
  arrived_.notify_all();
  const auto absent = [this] { return std::find(memories_.begin(), memories_.end(), nullptr); };
  if (!arrived_.wait_for(lock, limit, [&] { return absent() == memories_.end(); })) {
    return session_error(fmt::format("rank {} brought no memory within {} ms",
                                     absent() - memories_.begin(), limit.count()));
  }
  return memories_;
}

Result<std::unique_ptr<Transport>> make_fake_transport(const TransportConfig& config,
                                                       const Exchange& exchange,
                                                       const std::shared_ptr<FakeHub>& hub,
                                                       const FaultPlan& faults) {
  const Advertisement mine{.identity = config.identity,
                           .memory_bytes = config.memory_bytes,
                           .host = "this process",
                           .address = "",
                           .failure = ""};
  HEADRACE_TRY_ASSIGN([[maybe_unused]] const auto all, advertise(mine, exchange, config.bootstrap));
  HEADRACE_TRY_ASSIGN(Arena arena, Arena::anonymous(config.memory_bytes));
  HEADRACE_TRY_ASSIGN(
      auto met,
      hub->meet(config.identity.rank, std::make_shared<Arena>(std::move(arena)), config.bootstrap));
  std::vector<LivenessPeer> peers;
  for (int rank = 0; rank < config.identity.world_size; ++rank) {
    if (config.reach(rank) == Reach::none) {
      met[static_cast<std::size_t>(rank)].reset();
    } else if (rank != config.identity.rank) {
      peers.push_back({.rank = rank, .page = nullptr, .death = Fd()});
    }
  }
  const Capability capability{.get = true, .put = true, .accumulate = true};
  HEADRACE_TRY_ASSIGN(auto transport,
                      MappedTransport::make(config, capability, std::move(met), std::move(peers)));
  if (!faults) {
    return transport;
  }
  return std::unique_ptr<Transport>(
      std::make_unique<FaultyTransport>(config.identity, std::move(transport), faults));
}

}  // namespace headrace
