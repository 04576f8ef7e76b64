#include "plan/latin_square.h"

#include <algorithm>
#include <vector>

namespace headrace {

std::optional<WaveCollision> find_collision(const Topology& topology, int width) {
  const LatinSquare square(topology);
  const int nodes = topology.nodes();
  std::vector<int> last_with(static_cast<std::size_t>(topology.local_ranks()), 0);
  for (int wave = 0, first = 1; first <= nodes; ++wave, first += width) {
    const int end = std::min(first + width, nodes + 1);
    for (int contributor = first; contributor < end; ++contributor) {
      int& last = last_with[static_cast<std::size_t>(square.residue(contributor))];
      if (last >= first) {
        return WaveCollision{.wave = wave, .first = last, .second = contributor};
      }
      last = contributor;
    }
  }
  return std::nullopt;
}

}  // namespace headrace
