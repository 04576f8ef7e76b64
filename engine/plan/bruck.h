#pragma once

#include <vector>

namespace headrace {

/// One round of a node's all-gather over its rail: c_d = min(2^d, M - 2^d) slots go out and as many
/// come in.
struct BruckRound {
  int slots = 0;           ///< c_d; those sent are [0, c_d)
  int first_received = 0;  ///< 2^d; those received are [2^d, 2^d + c_d)
  int destination = 0;     ///< node (n - 2^d) mod M
  int source = 0;          ///< node (n + 2^d) mod M

  bool operator==(const BruckRound&) const = default;
};

/// Recursive doubling after Bruck et al., for any number of nodes. Slot k at node n is for the
/// shard of node (n + k) mod M; slot 0 is there from the start.
///
/// Post-conditions, for 0 <= node < nodes:
/// - there are ceil(log2 M) rounds, none where M = 1;
/// - a round sends only slots that earlier rounds have filled, and receives only slots that they
///   have not;
/// - what a node receives as slots [2^d, 2^d + c_d) its source sends in the same round from its
///   slots [0, c_d), and these hold the shards of the nodes that the received slots are for;
/// - after all rounds every slot holds its shard, and the c_d add up to M - 1: no shard comes
/// twice.
std::vector<BruckRound> bruck_rounds(int nodes, int node);

}  // namespace headrace
