#include "plan/bruck.h"

#include <algorithm>

namespace headrace {

std::vector<BruckRound> bruck_rounds(int nodes, int node) {
  std::vector<BruckRound> rounds;
  for (int step = 1; step < nodes; step *= 2) {
    rounds.push_back({.slots = std::min(step, nodes - step),
                      .first_received = step,
                      .destination = (node - step + nodes) % nodes,
                      .source = (node + step) % nodes});
  }
  return rounds;
}

}  // namespace headrace
