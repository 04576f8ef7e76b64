#include "plan/all_gather_signals.h"

namespace headrace {

AllGatherSignals::AllGatherSignals(const Topology& topology)
    : local_ranks_(static_cast<std::size_t>(topology.local_ranks())) {
  while ((std::size_t{1} << rounds_) < static_cast<std::size_t>(topology.nodes())) {
    ++rounds_;
  }
}

SignalId AllGatherSignals::slots_ready(int poster_local) const {
  return static_cast<SignalId>(poster_local);
}

SignalId AllGatherSignals::slots_read(int poster_local) const {
  return static_cast<SignalId>(local_ranks_) + static_cast<SignalId>(poster_local);
}

SignalId AllGatherSignals::arrived(std::size_t round) const {
  return static_cast<SignalId>(2 * local_ranks_ + round);
}

SignalId AllGatherSignals::confirmed(std::size_t round) const {
  return static_cast<SignalId>(2 * local_ranks_ + rounds_ + round);
}

SignalId AllGatherSignals::stage_free() const { return confirmed(0); }

std::size_t AllGatherSignals::count() const { return 2 * (local_ranks_ + rounds_); }

}  // namespace headrace
