#pragma once

#include <vector>

#include "support/peer_group.h"
#include "transport/cuda/cuda_transport.h"

namespace headrace::testing {

/// Ranks as processes, all on the first device, with this kind of device memory.
PeerGroup cuda_group(DeviceMemoryKind kind, int world_size, const CudaOptions& options = {});

/// Of every number of ranks that this program runs; of two also with the other kind of memory.
std::vector<PeerGroup> cuda_groups();

/// Device memory of the calling process.
std::unique_ptr<DataMemory> device_memory();

/// Why the tests of this program cannot run here; empty where they can. Asked in a process of its
/// own, since ranks are forked from this one, and a fork of a process that has used a device
/// cannot.
std::string why_no_device();

}  // namespace headrace::testing
