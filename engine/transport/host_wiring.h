#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "runtime/arena.h"
#include "transport/bootstrap.h"
#include "transport/transport.h"

namespace headrace {

/// Device memory as one process names it to another: by a descriptor, or by an opaque handle where
/// that is invalid.
struct DeviceHandle {
  static constexpr std::size_t k_opaque_bytes = 64;
  Fd fd;
  std::array<std::byte, k_opaque_bytes> opaque{};
};

/// What a rank hands each peer of its host.
struct HostOffer {
  const SharedMemory* memory = nullptr;
  const DeviceHandle* device = nullptr;  ///< null where it has no device memory
};

/// What wiring brings from one peer.
struct HostLink {
  Fd memory;                     ///< to map
  std::shared_ptr<Arena> arena;  ///< for a thread of this process: its memory, at the same address
  DeviceHandle device;
  Fd death;  ///< readable when the peer's process has ended
};

/// The memory domain of this process: two processes with the same text can map each other's memory.
Result<std::string> host_identity();

/// A Unix socket with a random abstract name: nothing of it stays in a file system, and who
/// connects must be the same user and know the peer's secret, which travels with the advertisement.
class HostListener {
 public:
  static Result<HostListener> open();

  /// Name and secret, for the advertisement.
  const std::string& address() const { return address_; }

  /// Connects to every lower rank of `peers` and accepts every higher one; passes what this rank
  /// offers and takes what they do. The result is in rank order, empty where a rank is no peer.
  /// Ends within `limit`, with an error that names a rank that did not come.
  Result<std::vector<HostLink>> wire(int rank, std::span<const int> peers,
                                     std::span<const Advertisement> all, const HostOffer& offer,
                                     Milliseconds limit);

 private:
  HostListener(Fd socket, std::string address)
      : socket_(std::move(socket)), address_(std::move(address)) {}

  Fd socket_;
  std::string address_;
};

/// Brings this rank together with every rank within its reach: advertises it, compares it with its
/// peers, passes what it offers and takes what they do. Links by rank, empty out of reach. `offer`
/// may be the error for which this rank cannot join: its peers are told, and it is returned.
Result<std::vector<HostLink>> join_host(const TransportConfig& config, const Exchange& exchange,
                                        const Result<HostOffer>& offer);

}  // namespace headrace
