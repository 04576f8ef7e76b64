#pragma once

#include <cstdint>
#include <span>

#include "replay/calls.h"
#include "replay/tensors.h"
#include "replay/times.h"

namespace headrace::replay {

/// Runs one minibatch of a rank: for each of its microbatches every group's forward and backward, a
/// third and two thirds of `microbatch_ns` spread evenly over the layers, the next layer gathered
/// ahead of each layer's compute. The root is gathered once a microbatch and reduced last. With
/// `check`, what was gathered is looked at, which is slow.
Result<StepTimes> run_step(Calls& calls, Tensors& tensors,
                           std::span<const std::int64_t> microbatch_ns, bool check);

}  // namespace headrace::replay
