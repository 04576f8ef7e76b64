#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/model_spec.h"

namespace headrace {

/// Elements [begin, end) of the packed output.
struct Stretch {
  std::size_t begin = 0;
  std::size_t end = 0;

  std::size_t elements() const { return end - begin; }
  bool operator==(const Stretch&) const = default;
};

/// What a stretch holds of one parameter: elements [first, first + elements) of each rank's block,
/// pad rows included, at `position` of the packed output.
struct PackedPiece {
  std::uint32_t parameter = 0;
  std::size_t first = 0;
  std::size_t elements = 0;
  std::size_t position = 0;

  bool operator==(const PackedPiece&) const = default;
};

/// The part of a piece that consecutive ranks have in their real rows: `ranks` of them, from the
/// `skipped`-th on, the first `elements` of the piece each.
struct RankRun {
  int skipped = 0;
  std::size_t ranks = 0;
  std::size_t elements = 0;

  bool operator==(const RankRun&) const = default;
};

/// The packed output of a reduce-scatter and the gradients that it comes from. A rank's output is
/// its blocks end to end, block p at element `AddressMap::accumulator_offset(p) / 4`; up to three
/// elements between two blocks belong to nobody.
class PackedOutput {
 public:
  PackedOutput(const GroupSpec& group, int world_size);

  /// Blocks, pad rows and gaps.
  std::size_t elements() const { return elements_; }
  /// The pieces that cover all of the stretch but gaps, in increasing position.
  std::vector<PackedPiece> pieces(Stretch stretch) const;
  /// The piece in the blocks of ranks [first_rank, first_rank + ranks), clipped to their real rows:
  /// at most one run of ranks that have all of it, then at most one rank that has a part.
  std::vector<RankRun> runs(const PackedPiece& piece, int first_rank, int ranks) const;
  /// How many of these ranks, from the first on, have real rows in the stretch.
  int ranks_with(Stretch stretch, int first_rank, int ranks) const;
  /// Where a rank's piece starts in the parameter's whole gradient. Valid where the rank has it.
  std::size_t gradient_element(const PackedPiece& piece, int rank) const {
    return static_cast<std::size_t>(rank) * blocks_[piece.parameter].elements + piece.first;
  }
  /// From a rank's piece to the next rank's in the gradient.
  std::size_t gradient_pitch(const PackedPiece& piece) const {
    return blocks_[piece.parameter].elements;
  }

 private:
  struct Block {
    std::size_t position = 0;
    std::size_t elements = 0;  ///< R_p * K_p
    std::size_t real = 0;      ///< D_p * K_p, of all ranks
  };
  std::vector<Block> blocks_;
  std::size_t elements_ = 0;
};

}  // namespace headrace
