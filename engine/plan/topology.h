#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace headrace {

/// Where ranks are: `nodes` domains of `local_ranks` ranks that map each other's memory.
/// Node-major: rank = node * local_ranks + local.
class Topology {
 public:
  /// Error unless both are positive.
  static Result<Topology> make(int nodes, int local_ranks);
  static Result<Topology> single_node(int ranks) { return make(1, ranks); }

  int nodes() const { return nodes_; }
  int local_ranks() const { return local_ranks_; }
  int world_size() const { return nodes_ * local_ranks_; }
  int node_of(int rank) const { return rank / local_ranks_; }
  int local_of(int rank) const { return rank % local_ranks_; }
  int rank_of(int node, int local) const { return node * local_ranks_ + local; }

  /// Every rank once, starting at `self` and counting up around the world: the order in which a
  /// rank visits owners, so that at any moment different ranks tend to visit different owners.
  std::vector<int> rotation(int self) const;

  bool operator==(const Topology&) const = default;

 private:
  Topology(int nodes, int local_ranks) : nodes_(nodes), local_ranks_(local_ranks) {}

  int nodes_;
  int local_ranks_;
};

}  // namespace headrace
