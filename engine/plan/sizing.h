#pragma once

#include <cstddef>

#include "base/dtype.h"
#include "base/result.h"
#include "plan/topology.h"

namespace headrace {

/// Measured rates of a machine and what to provide for. The defaults are those of appendix G of the
/// TIDE paper: eight GPUs a node, one 400 Gb/s rail each.
struct Calibration {
  double rail_rate = 47.5e9;      ///< bytes/s that one rail keeps up
  double sum_rate = 99e9;         ///< bytes/s read and written by one sum block
  double landing_rate = 21e9;     ///< bytes/s landed by one landing block
  double landing_ceiling = 90e9;  ///< bytes/s landed by any number of them
  double round_seconds = 1.3e-3;  ///< waiting for peers that one round costs
  double arrival_skew = 1.5;      ///< sum blocks are provided for so many times the rail's rate
  double landing_tail = 0.05;     ///< of the wire time may pass after the last wave has come
  double round_share = 0.10;      ///< of the wire time may be spent in waiting for rounds
  int first_transfers = 2;        ///< k to start from
  int most_transfers = 4;         ///< k to stop at
};

/// What a reduce-scatter is sized for.
struct SizingRequest {
  std::size_t output_bytes = 0;  ///< S_fp32 of the largest group
  DType gradient = DType::bfloat16;
  int width = 1;  ///< W: contributors a wave
  int passes = 1;
};

/// Numbers that change speed but no bit of the result.
struct Sizing {
  int sum_blocks = 1;       ///< C_sum
  int landing_blocks = 1;   ///< C_mc
  int transfers = 1;        ///< k
  int rounds = 0;           ///< of one pass
  double wire_seconds = 0;  ///< t_NIC = (M - 1) S_fp32 / rail rate

  bool operator==(const Sizing&) const = default;
};

/// Network rounds of one pass with at most `transfers` transfers each, none across waves: the
/// remote contributors 1 to M - 1 in waves of `width`.
int count_rounds(int nodes, int width, int transfers);

/// Appendix G:
/// - C_sum = ceil(skew * (L * gradient item / 4 + 1) * rail rate / sum rate): level 1 reads L items
///   and writes one fp32 element for each that goes out;
/// - C_mc = min(floor(ceiling / landing rate),
///              ceil(S_fp32 / passes / (tail * t_NIC * landing rate))), at least 1;
/// - k doubles from its start while the rounds would wait for more than their share of the wire
///   time and doubling saves rounds. One node: no rounds, k = 1.
/// Error where a rate or count is not positive.
Result<Sizing> size_lockstep(const Topology& topology, const SizingRequest& request,
                             const Calibration& calibration = {});

}  // namespace headrace
