#include "plan/lane_clock.h"

#include <algorithm>

namespace headrace {

std::vector<std::uint32_t>& LaneClock::writable() {
  if (known_.use_count() > 1) {
    known_ = std::make_shared<std::vector<std::uint32_t>>(*known_);
  }
  return *known_;
}

void LaneClock::learn(const Snapshot& snapshot) {
  // Whoever knows an operation knows all that it knew.
  if (knows(snapshot.self)) {
    return;
  }
  std::vector<std::uint32_t>& known = writable();
  for (std::size_t lane = 0; lane < known.size(); ++lane) {
    known[lane] = std::max(known[lane], (*snapshot.known)[lane]);
  }
  known[snapshot.self.lane] = snapshot.self.count;
}

void LaneClock::learn(Epoch epoch) {
  if (!knows(epoch)) {
    writable()[epoch.lane] = epoch.count;
  }
}

}  // namespace headrace
