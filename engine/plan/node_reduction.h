#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/program_builder.h"
#include "plan/reduce_scatter_layout.h"

namespace headrace {

/// What one local rank sums over its node in one step: a stretch of the output of consecutive
/// ranks.
struct OwnedSum {
  Stretch stretch;
  int first_rank = 0;
  int ranks = 0;
};

/// Level 1 of a reduce-scatter, one rank's part: local ranks push their gradients, chunk by chunk,
/// into the staging of those who own a sum, who add them in fp32: the staged ones in the order of
/// local ranks, then the own, where it lies.
///
/// All in lane `local`. All local ranks must take the same steps in the same order; then a push
/// waits only for sums of earlier steps or chunks, and a sum only for pushes of its own: nobody
/// waits for ever. A rank waits for its slots of earlier calls when it first uses them.
class NodeReduction {
 public:
  /// Refers to its arguments.
  NodeReduction(const ReduceScatterLayout& layout, int rank, ProgramBuilder& builder);

  /// One step: `owned` by local rank. The own sum goes to `destination`, a row a rank, where its
  /// stretch begins; it is written after the operations `after`. Returns the position of the last
  /// write, none where there is nothing to sum.
  std::vector<std::uint32_t> reduce(const std::vector<OwnedSum>& owned, const Strided& destination,
                                    bool finish, std::vector<std::uint32_t> after = {});
  /// After the last step.
  void end();

 private:
  void push(int owner, const OwnedSum& owned, std::size_t chunk);
  void sum(const OwnedSum& owned, std::size_t chunk, const Strided& destination, bool finish);
  void sum_run(const PackedPiece& piece, const RankRun& run, const OwnedSum& owned, Stretch chunk,
               const Strided& destination, bool finish);
  /// The rank's own gradient of the piece, for the run's destination ranks.
  Strided gradient(const PackedPiece& piece, const RankRun& run, int first_rank) const;
  std::size_t slot(std::uint32_t chunk) const;
  int peer(int local) const;

  const ReduceScatterLayout& layout_;
  const Topology& topology_;
  ProgramBuilder& builder_;
  int rank_;
  int local_;
  std::vector<std::uint32_t> pushed_;   ///< chunks so far, by owner
  std::uint32_t summed_ = 0;            ///< chunks so far
  std::vector<std::uint32_t> after_;    ///< of the next write
  std::vector<std::uint32_t> written_;  ///< the step's last write
};

}  // namespace headrace
