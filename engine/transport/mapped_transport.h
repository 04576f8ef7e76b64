#pragma once

#include <memory>
#include <vector>

#include "runtime/arena.h"
#include "transport/channel.h"
#include "transport/transport.h"

namespace headrace {

/// One rank's view of the symmetric memories within its reach, once they are mapped: what `shm` and
/// `fake` have in common.
class MappedTransport final : public Transport {
 public:
  /// `memories[r]` is rank r's memory as this process sees it, null where it is out of reach; it
  /// lives as long as the transport. `peers` are the ranks within reach but this one.
  static Result<std::unique_ptr<Transport>> make(const TransportConfig& config,
                                                 Capability capability,
                                                 std::vector<std::shared_ptr<Arena>> memories,
                                                 std::vector<LivenessPeer> peers);

  Capability capability() const override { return capability_; }
  std::byte* at(std::size_t offset) override { return memory_ + offset; }
  std::shared_ptr<const void> memory_owner() const override { return memory_owner_; }
  Channel& channel(int peer) override { return *channels_[static_cast<std::size_t>(peer)]; }
  Result<std::unique_ptr<Stream>> make_stream() override;
  Result<std::shared_ptr<std::byte>> allocate(std::size_t bytes) override;
  const Kernels& kernels() const override { return host_kernels(); }
  Liveness& liveness() override { return *liveness_; }
  Waiter& waiter() override { return waiter_; }

 private:
  MappedTransport(const TransportConfig& config, Capability capability,
                  std::vector<std::shared_ptr<Arena>> memories, std::unique_ptr<Liveness> liveness);

  // In the order in which they may go last: the liveness thread reads the memories.
  std::vector<std::shared_ptr<Arena>> memories_;
  std::byte* memory_;
  std::shared_ptr<const void> memory_owner_;
  Capability capability_;
  std::unique_ptr<Liveness> liveness_;
  Waiter waiter_;
  std::vector<std::unique_ptr<Channel>> channels_;  ///< by rank
};

}  // namespace headrace
