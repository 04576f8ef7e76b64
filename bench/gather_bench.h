#pragma once

#include <vector>

#include "bench/wiring.h"

namespace headrace::bench {

/// Arms, in order: publish; gather (ours); packed_baseline; limit, a flat streaming-store copy of
/// the same bytes from the same memory; then the plan's peers. Checks what the first gather and the
/// baseline brought.
Result<std::vector<Spans>> gather_bench(const RankPlan& plan);

/// Arms, in order: arrival_minibatch and reproducible_minibatch, publish to settle around one push;
/// arrival, the push alone (ours); reproducible, the same into slots; packed_baseline; limit, the
/// same accumulate kernel on private memory without locks; then peers.
Result<std::vector<Spans>> push_bench(const RankPlan& plan);

}  // namespace headrace::bench
