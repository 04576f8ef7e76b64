#pragma once

#include <optional>

#include "plan/topology.h"

namespace headrace {

/// Where the node partials of a reduce-scatter lie at their destination.
///
/// A destination node counts the nodes that contribute to it, in the order in which it hears of
/// them: contributors 1 to M - 1 are remote, contributor M is the node itself. A node's partial for
/// one destination node is cut into L sub-slices. It reaches the destination over L rails, and rail
/// l carries sub-slice (l + c') mod L, where c' = c mod M. So for a fixed sub-slice, consecutive
/// contributors lie on different local ranks of the destination, each in inbox block `sub_slice`,
/// and one combine over the node adds them all.
///
/// Post-conditions, for nodes in [0, M), contributors in [1, M], locals and sub-slices in [0, L):
/// - `contributor` and `source` are inverse for a fixed destination, `contributor` and
///   `destination` for a fixed source;
/// - `sub_slice` and `local_of` are inverse for a fixed contributor;
/// - two contributors share a local rank in one sub-slice exactly where they share their residue,
///   and then they do so in all sub-slices.
class LatinSquare {
 public:
  explicit LatinSquare(const Topology& topology)
      : nodes_(topology.nodes()), local_ranks_(topology.local_ranks()) {}

  /// c(m, n) = (m - n) mod M, or M where n = m.
  int contributor(int destination, int source) const {
    return destination == source ? nodes_ : (destination - source + nodes_) % nodes_;
  }
  /// The node that is this contributor of the destination.
  int source(int destination, int contributor) const {
    return (destination - contributor + nodes_) % nodes_;
  }
  /// The node that the source is this contributor of.
  int destination(int source, int contributor) const { return (source + contributor) % nodes_; }

  /// c' mod L: two contributors with different residues never meet on a local rank.
  int residue(int contributor) const {
    return contributor == nodes_ ? 0 : contributor % local_ranks_;
  }
  /// The sub-slice of this contributor that local rank `local` sums, sends and holds when received.
  int sub_slice(int local, int contributor) const {
    return (local + residue(contributor)) % local_ranks_;
  }
  /// The local rank that holds this contributor's sub-slice.
  int local_of(int sub_slice, int contributor) const {
    return (sub_slice - residue(contributor) + local_ranks_) % local_ranks_;
  }

 private:
  int nodes_;
  int local_ranks_;
};

/// Two contributors of one wave on the same local rank.
struct WaveCollision {
  int wave = 0;
  int first = 0;
  int second = 0;

  bool operator==(const WaveCollision&) const = default;
};

/// The first collision where contributors 1 to M come in waves of `width` >= 1, in increasing
/// order. None where the width divides L; other widths collide where the own node, whose residue is
/// 0, shares the last wave with a multiple of L.
std::optional<WaveCollision> find_collision(const Topology& topology, int width);

}  // namespace headrace
