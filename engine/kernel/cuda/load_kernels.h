#pragma once

#include "base/clock.h"
#include "base/result.h"

namespace headrace {

/// Launches every kernel once, on next to nothing and on the calling thread's current device.
///
/// The driver loads a kernel when it is first launched, and may wait for all work of the device
/// then: where a stream waits for a peer, and the peer for what this thread would enqueue next, for
/// ever. So this comes before the first such wait. Work that is under way has `limit` to end.
Status load_kernels(Milliseconds limit);

}  // namespace headrace
