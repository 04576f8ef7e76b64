#pragma once

#include <memory>

#include "base/clock.h"
#include "kernel/cuda/cuda_kernels.h"
#include "runtime/cuda/cuda_stream.h"
#include "transport/cuda/device_copies.h"
#include "transport/cuda/device_memory.h"
#include "transport/transport.h"

namespace headrace {

struct CudaOptions {
  DeviceMemoryKind memory = DeviceMemoryKind::automatic;
  CopyChoice copies;
  /// Blocks of the kernels that sum and add, at most: few, so that computation beside them keeps
  /// its multiprocessors.
  CudaKernelOptions kernels{.max_blocks = 4};
  StreamPriority priority = StreamPriority::high;
  /// Streams that this rank may make, all of which may wait at once. Each holds a hardware queue of
  /// the device while it waits, and the caller's own streams need one too.
  int streams = 2;
  /// How long a transport that goes waits for its streams. Memory that they might still touch is
  /// then left to the end of the process.
  Milliseconds drain{5'000};
};

/// Ranks as processes (or threads) of one host, each with the device that is current where this is
/// called; several may share one device, and threads share their process's hardware queues. Control
/// memory is a memfd, as with `shm`, which the device sees too; the rest is device memory that
/// every peer maps once. Streams of the caller's must have passed what channels enqueued on them
/// before the transport goes; those that it made are waited for. Memory from `allocate` waits for
/// the device's work, as cudaFree does, when it goes.
Result<std::unique_ptr<Transport>> make_cuda_transport(const TransportConfig& config,
                                                       const Exchange& exchange,
                                                       const CudaOptions& options = {});

/// What `cuda` can do with the current device, or why it cannot: no driver, no device, none
/// that the kernels were compiled for, no stream memory operations, too few hardware queues for the
/// streams.
Result<Capability> probe_cuda(const CudaOptions& options = {});

}  // namespace headrace
