#pragma once

#include <functional>

#include "base/clock.h"

namespace headrace {

enum class LaneOperation { get, put, accumulate, signal };

/// What becomes of one operation on one lane. A read is complete only with its data: one that would
/// not happen ends in a peer error, as its time-out would, and it is never reordered.
struct Fault {
  enum class Kind {
    none,
    delay,    ///< happens `delay` later
    drop,     ///< never happens, and is reported as done
    reorder,  ///< happens after the lane's next operation
    stop,     ///< neither this nor any later operation of the lane happens
  };
  Kind kind = Kind::none;
  Milliseconds delay{0};
};

/// Asked for every operation with the lane (source, peer), the operation and its number on the
/// lane, from 0. Called by the source's thread. Empty: no faults.
using FaultPlan =
    std::function<Fault(int source, int peer, LaneOperation operation, std::uint64_t number)>;

}  // namespace headrace
