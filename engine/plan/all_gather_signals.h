#pragma once

#include <cstddef>

#include "plan/schedule.h"
#include "plan/topology.h"

namespace headrace {

/// The identifiers of an all-gather's signals: [0, count()). What follows is free for others.
class AllGatherSignals {
 public:
  explicit AllGatherSignals(const Topology& topology);

  /// From a local rank: its slots are there, part after part.
  SignalId slots_ready(int poster_local) const;
  /// From a local rank: it has read this rank's slots.
  SignalId slots_read(int poster_local) const;
  /// From the round's source: heads, then the rest, have arrived.
  SignalId arrived(std::size_t round) const;
  /// From the destination of a round >= 1: the round before has arrived there, send.
  SignalId confirmed(std::size_t round) const;
  /// From the destination of round 0: its stage is free again. Those of later rounds need not say
  /// so, because what they confirm has been sent after they said it to their round 0's source.
  SignalId stage_free() const;

  std::size_t count() const;
  std::size_t rounds() const { return rounds_; }

 private:
  std::size_t local_ranks_;
  std::size_t rounds_ = 0;
};

}  // namespace headrace
