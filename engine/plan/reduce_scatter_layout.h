#pragma once

#include <cstddef>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "plan/latin_square.h"
#include "plan/model_spec.h"
#include "plan/packed_output.h"
#include "plan/reduce_scatter_signals.h"
#include "plan/schedule.h"
#include "plan/sub_slice.h"
#include "plan/topology.h"
#include "plan/wave_plan.h"

namespace headrace {

/// The same on all ranks. Only `wave_width` changes the bits of the result; it is one for all
/// groups that share an arena, as the topology is: who may write to an inbox first depends on it.
struct ReduceScatterOptions {
  std::vector<DType> gradients;  ///< one a parameter
  int wave_width = 0;            ///< W, 1 to L; 0: L
  int transfers = 4;             ///< k: rail transfers a round
  int passes = 1;                ///< n_part, 1 to 4: parts that a sub-slice is sent in
  GradientMode mode = GradientMode::in_place;
  int staging_slots = 2;  ///< n_stg
  /// A rank pushes about so many bytes into another's staging slot at a time; at least 16 an fp32
  /// row, at most all there is. As measured over shared memory with `headrace bench reduce-scatter
  /// --staging-kib`: chunks of 512 KiB to 2 MiB, in 1 to 4 slots, differ by less than 10 %; 256 KiB
  /// take a tenth longer; below 128 KiB, where they are stored through the caches, 2 to 3 times as
  /// long across cores, since lines that one core has just written reach the other slower than
  /// memory does.
  std::size_t chunk_bytes = 1 << 20;
  SignalId first_signal = 0;  ///< identifiers from here on are the reduce-scatter's

  bool operator==(const ReduceScatterOptions&) const = default;
};

/// Where everything lies in the arena regions of a reduce-scatter.
///
/// - staging: n_stg slots, each one chunk of the other L - 1 local ranks in order, each a row a
///   destination rank, in the largest dtype of the gradients;
/// - a block of outbox, inbox or spare: L fp32 rows of one part, row l for local rank l;
/// - outbox: blocks, in the order of sending, used again in turn; inbox: generations of L blocks,
///   block s for sub-slice s; spare: a block a pass.
///
/// On one node only staging is used, with one row: each rank sums its own output.
class ReduceScatterLayout {
 public:
  /// Error for options out of range or not fitting the group, and for colliding waves.
  static Result<ReduceScatterLayout> make(const Topology& topology, const GroupSpec& group,
                                          const ReduceScatterOptions& options);

  const Topology& topology() const { return waves_.topology(); }
  const ReduceScatterOptions& options() const { return options_; }
  const PackedOutput& output() const { return output_; }
  const SubSlices& sub_slices() const { return sub_slices_; }
  const WavePlan& waves() const { return waves_; }
  LatinSquare square() const { return LatinSquare(topology()); }
  const ReduceScatterSignals& signals() const { return signals_; }
  int outbox_blocks() const { return outbox_blocks_; }

  ScheduleShape shape() const;

  /// Chunks that a stretch is pushed in, and the `index`-th of them.
  std::size_t chunks(Stretch stretch) const;
  Stretch chunk(Stretch stretch, std::size_t index) const;
  /// In `owner`'s staging: what local rank `pusher` has of a chunk from `begin` on, for the
  /// `row`-th destination rank on, one row each.
  Strided staged(int owner, int pusher, std::size_t slot, int row, Stretch chunk,
                 const PackedPiece& piece) const;
  /// The `row`-th destination rank's row and those after it, from `element` of the part on.
  Strided outbox(int local, int block, int row, std::size_t element) const;
  Strided spare(int local, int pass, int row, std::size_t element) const;
  Strided inbox(int local, int generation, int sub_slice, int row, std::size_t element) const;

 private:
  ReduceScatterLayout(const GroupSpec& group, const ReduceScatterOptions& options,
                      const WavePlan& waves);

  std::size_t row_bytes() const { return sub_slices_.part_capacity() * sizeof(float); }
  std::size_t block_bytes() const;
  std::size_t pusher_bytes() const;
  Strided block(int local, Region region, std::size_t index, int row, std::size_t element) const;

  ReduceScatterOptions options_;
  WavePlan waves_;
  PackedOutput output_;
  SubSlices sub_slices_;
  ReduceScatterSignals signals_;
  std::size_t staged_rows_;      ///< destination ranks of one chunk
  std::size_t staged_item_ = 2;  ///< bytes
  std::size_t chunk_elements_ = 0;
  int outbox_blocks_ = 0;
};

}  // namespace headrace
