#pragma once

#include <cstdint>
#include <span>

#include "replay/calls.h"
#include "replay/tensors.h"
#include "replay/times.h"

namespace headrace::replay {

struct StepOptions {
  bool on_worker = false;  ///< the calls run beside the caller
  bool check = false;      ///< look at every byte gathered, which is slow
};

/// Runs one minibatch of a rank: for each of its microbatches every group's forward and backward, a
/// third and two thirds of `microbatch_ns` spread evenly over the layers, the next layer gathered
/// ahead of each layer's compute. The root is gathered once a microbatch and reduced last.
Result<StepTimes> run_step(Calls& calls, Tensors& tensors,
                           std::span<const std::int64_t> microbatch_ns, StepOptions options);

}  // namespace headrace::replay
