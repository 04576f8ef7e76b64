#pragma once

#include <string_view>

#include "base/result.h"

namespace headrace {

/// That the current device does 64-bit stream memory operations on memory of the host, on which
/// signals stand.
Status check_stream_memory_operations();

/// That this machine has an NVIDIA GPU and a driver that this build can use.
Status check_device();

/// That a device of this compute capability, 90 for 9.0, runs what was compiled for `architectures`
/// ("90,100-real"): the oldest of them or a newer one.
Status check_compute_capability(int capability, std::string_view architectures);

/// That `streams` streams of this process may wait at once and leave a hardware queue for the
/// caller's work: with fewer queues a wait can stand before the very work it waits for.
Status check_hardware_queues(int streams);

}  // namespace headrace
