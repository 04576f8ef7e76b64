#pragma once

#include <array>
#include <cstddef>

#include "base/dtype.h"
#include "base/result.h"
#include "plan/schedule.h"
#include "plan/wave_plan.h"

namespace headrace {

/// What the memory of lockstep depends on beside the waves. One group, the largest.
struct MemoryRequest {
  std::size_t shard_elements = 0;  ///< of one rank, pad rows included: S is these in `gather`
  DType gather = DType::bfloat16;
  DType gradient = DType::bfloat16;
  bool cast = false;      ///< the shard's own dtype is another, so it is cast into the stage
  int landing_slots = 2;  ///< of the ring
  int staging_slots = 2;  ///< n_stg
  GradientMode mode = GradientMode::in_place;
  std::size_t alignment = 16;  ///< bytes; a power of two. Sub-slices start at multiples of it
};

/// Bytes a rank, in closed form. With E elements in a sub-slice, the shard's elements over L *
/// passes rounded up to the alignment, a block of L destination ranks has B = 4 L E bytes.
///
/// | region   | bytes of a bank            | banks         |
/// |----------|----------------------------|---------------|
/// | landing  | N S                        | landing slots |
/// | stage    | (M - 1) S; M S with a cast | 1             |
/// | resident | S                          | 1; 0 with a cast |
/// | staging  | (L - 1) L E gradient items | n_stg         |
/// | outbox   | outbox blocks * B          | 2             |
/// | inbox    | L B                        | generations   |
/// | spare    | passes * B                 | 2             |
/// | output   | S_fp32                     | 1             |
/// | gradient | N S_grad: the layer before, which in-place mode still reads | 1; 0 slot reuse |
struct LockstepMemory {
  std::array<RegionSize, k_regions> regions;
  std::size_t unsharded_bytes = 0;       ///< NS
  std::size_t reduce_scatter_bytes = 0;  ///< staging, outbox, inbox and spare
  /// The paper's bound of these with one pass; more passes never take more. For bf16 gradients
  /// (L/2 * n_stg + L * generations + 2 * n_out + 2) S_fp32, with L * n_stg for fp32 ones; n_out is
  /// M - 1 in place and 2 k with slot reuse. Rounding to the alignment comes on top.
  std::size_t reduce_scatter_bound = 0;
  /// Live in a layer's backward: landings, stage, reduce-scatter and the gradients before; and its
  /// bound with a stage of M S.
  std::size_t backward_bytes = 0;
  std::size_t backward_bound = 0;
  /// Stock FSDP2's at the same moment: parameters, prefetched parameters, packed fp32 gradients.
  std::size_t stock_bytes = 0;

  const RegionSize& operator[](Region region) const {
    return regions[static_cast<std::size_t>(region)];
  }
};

/// Error where sizes do not fit 63 bits, a count is below 1, or gradients with a larger item than
/// the landing's are to be copied into a landing.
Result<LockstepMemory> lockstep_memory(const WavePlan& waves, const MemoryRequest& request);

}  // namespace headrace
