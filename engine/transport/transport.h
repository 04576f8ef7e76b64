#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kernel/kernels.h"
#include "runtime/liveness.h"
#include "runtime/waiter.h"
#include "transport/bootstrap.h"
#include "transport/capability.h"
#include "transport/channel.h"

namespace headrace {

/// What a rank shares with another.
enum class Reach {
  node,  ///< all operations on the other's memory
  rail,  ///< put and signal: the same local rank of another node
  none,  ///< no channel
};

struct TransportConfig {
  Identity identity;             ///< what this rank is, and what must agree with its peers
  int local_ranks = 0;           ///< of each node, node-major; 0: all ranks are on one node
  std::size_t memory_bytes = 0;  ///< of symmetric memory; the first page is the liveness page
  /// Of it, from the start, what processors touch: signals, digests, records, locks. Host memory on
  /// every transport. 0: one page.
  std::size_t control_bytes = 0;
  LivenessConfig liveness;
  WaitConfig wait;
  Milliseconds bootstrap{60'000};  ///< longest wait for peers while wiring
  std::function<bool()> interrupted;

  Reach reach(int peer) const;
  /// The other ranks with a channel.
  std::vector<int> within_reach() const;
};

/// This rank's symmetric memory and a channel to every rank within reach, itself included.
/// Everything is wired when it is made; peers that cannot talk to each other get an error then,
/// before the first byte moves.
class Transport {
 public:
  virtual ~Transport() = default;

  /// Within a node.
  virtual Capability capability() const = 0;
  /// This rank's symmetric memory at `offset`; zero-initialised, the same offsets on every rank.
  /// From control_bytes on it is contiguous, and where the kernels work.
  virtual std::byte* at(std::size_t offset) = 0;
  /// Keeps this rank's memory mapped for as long as it lives, longer than the transport.
  virtual std::shared_ptr<const void> memory_owner() const = 0;
  /// Every operation of a channel to a rank out of reach is an operation error.
  virtual Channel& channel(int peer) = 0;
  /// A stream that runs beside the caller: a thread on the host, a stream of the device elsewhere.
  /// Lives no longer than the transport.
  virtual Result<std::unique_ptr<Stream>> make_stream() = 0;
  /// Memory of this rank alone, of the kind on which the kernels work; 256-byte aligned, with
  /// anything in it. Lives no longer than the transport.
  virtual Result<std::shared_ptr<std::byte>> allocate(std::size_t bytes) = 0;
  /// What computes on the symmetric memory, and on the caller's memory in streams of its kind.
  virtual const Kernels& kernels() const = 0;
  virtual Liveness& liveness() = 0;
  virtual Waiter& waiter() = 0;
};

}  // namespace headrace
