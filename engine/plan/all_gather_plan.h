#pragma once

#include <cstddef>

#include "base/dtype.h"
#include "plan/model_spec.h"
#include "plan/schedule.h"
#include "plan/topology.h"

namespace headrace {

struct AllGatherOptions {
  /// The shard is converted into stage slot 0; else it is adopted: it lies in `Region::resident`.
  bool cast = false;
  DType shard_dtype = DType::float32;  ///< with `cast`
  /// Of all rounds together: what comes first and lets the receiver confirm while the rest travels.
  std::size_t head_bytes = 8 << 20;
  /// Consecutive slots that become one strided copy a parameter; fewer are copied one by one.
  int min_run = 4;
  /// Parts of the last round, at least `min_run` slots each, that are copied as they arrive.
  int last_round_groups = 4;

  bool operator==(const AllGatherOptions&) const = default;
};

/// All-gather after the TIDE paper, sections 3.1 and 3.2, with landings that are private: each rank
/// copies from the arenas of its node into its own landing.
///
/// On one node a rank signals, copies P blocks from every local rank and tells it so. On M nodes
/// the slots travel along the rails in `bruck_rounds`, and local ranks copy them as they arrive. A
/// round starts when its destination has confirmed the round before; round 0, when the
/// destination's node has read what the call before brought.
///
/// Lanes: `ready` waits for what arrives and says so; `network` puts; `local` copies to the
/// landing; `complete` waits for those who read here. The cast is in `complete` too: it overwrites
/// what they read.
///
/// Stage: (M - 1) published shards, M with a cast. Only real rows are written to a landing.
ScheduleShape all_gather_shape(const Topology& topology, const GroupSpec& group,
                               const AllGatherOptions& options);

/// The part of one rank; the programs of all ranks pass `schedule_check`.
///
/// Descriptors are O(P log M) a local rank. Where M = 2^R >= 32, min_run = last_round_groups = 4
/// and all P parameters have rows a multiple of N, and no cast is made, node n has
/// L P (R + 5 + w(n)) copies: slot 0; one of round 0; two of round 1; one of each other round but
/// the last; four of the last. w(n) is what splitting the run that goes from node M - 1 to node 0
/// costs: in round floor(log2(M - n)) for n > 0, for parts of a and b slots of one run,
/// f(a) + f(b) - f(a + b), where f(c) is 1 for c >= 4 and c below. Beside these there are one put
/// in round 0, two in each other round but the last, and 5 in the last, and one more for each round
/// that the end of its head cuts inside slot 0 or inside the rest.
RankProgram all_gather_program(const Topology& topology, const GroupSpec& group,
                               const AllGatherOptions& options, int rank);

}  // namespace headrace
