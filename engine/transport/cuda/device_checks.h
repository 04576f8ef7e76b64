#pragma once

#include "base/result.h"

namespace headrace {

/// That the current device does 64-bit stream memory operations on memory of the host, on which
/// signals stand.
Status check_stream_memory_operations();

/// That `streams` streams of this process may wait at once and leave a hardware queue for the
/// caller's work: with fewer queues a wait can stand before the very work it waits for.
Status check_hardware_queues(int streams);

}  // namespace headrace
