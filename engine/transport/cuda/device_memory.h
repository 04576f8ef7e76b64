#pragma once

#include <cstddef>
#include <memory>

#include "base/clock.h"
#include "base/result.h"
#include "transport/host_wiring.h"

namespace headrace {

/// How device memory is made known to other processes.
enum class DeviceMemoryKind {
  automatic,  ///< mapped where the device offers it, else ipc
  mapped,     ///< physical memory mapped by each process, passed as a file descriptor
  ipc,        ///< an allocation of the runtime, passed as a CUDA IPC handle
};

/// Memory of the current device: this rank's own, or a view of a peer's. Goes when the last view
/// does; a process that ends in any way takes nothing from the others.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  virtual std::byte* data() const = 0;

  /// Zeroed, which may take `limit`. `handle` is for the peers.
  static Result<std::shared_ptr<DeviceMemory>> create(std::size_t bytes, DeviceMemoryKind kind,
                                                      DeviceHandle* handle, Milliseconds limit);
  /// A peer's memory of this many bytes.
  static Result<std::shared_ptr<DeviceMemory>> open(const DeviceHandle& handle, std::size_t bytes);
};

}  // namespace headrace
