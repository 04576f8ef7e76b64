#pragma once

#include <cstddef>

#include "plan/schedule.h"
#include "plan/topology.h"

namespace headrace {

/// The identifiers of a reduce-scatter's signals: [first, end()). The argument is the poster.
class ReduceScatterSignals {
 public:
  ReduceScatterSignals(const Topology& topology, SignalId first)
      : first_(first),
        local_ranks_(static_cast<SignalId>(topology.local_ranks())),
        nodes_(static_cast<SignalId>(topology.nodes())) {}

  /// From a local rank: its gradients for this rank are in a staging slot.
  SignalId pushed(int local) const { return first_ + static_cast<SignalId>(local); }
  /// From a local rank: it has summed what this rank pushed.
  SignalId slot_free(int local) const { return pushed(local) + local_ranks_; }
  /// From a local rank: a wave is whole in its inbox.
  SignalId wave_whole(int local) const { return slot_free(local) + local_ranks_; }
  /// From a local rank: it has landed its rows of a wave.
  SignalId wave_landed(int local) const { return wave_whole(local) + local_ranks_; }
  /// From a node's rank on this rail: a node partial is in this rank's inbox.
  SignalId arrived(int node) const {
    return first_ + 4 * local_ranks_ + static_cast<SignalId>(node);
  }
  /// From a node's rank on this rail: its inbox is free for this rank's next partial, one raise a
  /// partial.
  SignalId inbox_free(int node) const { return arrived(node) + nodes_; }

  SignalId end() const { return first_ + 4 * local_ranks_ + 2 * nodes_; }

 private:
  SignalId first_;
  SignalId local_ranks_;
  SignalId nodes_;
};

}  // namespace headrace
