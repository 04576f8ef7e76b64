#pragma once

#include <cstddef>
#include <vector>

#include "plan/model_spec.h"

namespace headrace {

/// The two maps of one group, in bytes. b_p = R_p * K_p * itemsize_p is never rounded, so the N
/// blocks of a parameter form one contiguous view.
///
/// - landing: block (p, rank) lies at rank * b_p from where parameter p's landing starts.
/// - published shard: block p of any rank lies at a_p = sum over i < p of round_up(b_i, 16).
///
/// The accumulators use the published map with four bytes an element.
class AddressMap {
 public:
  AddressMap(const GroupSpec& group, int world_size);

  std::size_t parameters() const { return blocks_.size(); }
  /// b_p: bytes of one rank's block in the compute dtype, pad rows included.
  std::size_t block_bytes(std::size_t parameter) const { return blocks_[parameter].bytes; }
  /// Bytes of the rank's real rows.
  std::size_t shard_bytes(std::size_t parameter, int rank) const;
  /// Elements of the rank's real rows.
  std::size_t shard_elements(std::size_t parameter, int rank) const;
  /// Offset of (parameter, rank) in the parameter's landing.
  std::size_t landing_offset(std::size_t parameter, int rank) const {
    return static_cast<std::size_t>(rank) * blocks_[parameter].bytes;
  }
  /// N * b_p.
  std::size_t landing_bytes(std::size_t parameter) const;
  /// First element of the rank's rows in the unsharded parameter (and in its gradient).
  std::size_t first_element(std::size_t parameter, int rank) const;
  /// a_p, in a rank's published shard.
  std::size_t published_offset(std::size_t parameter) const { return blocks_[parameter].published; }
  std::size_t published_bytes() const { return published_bytes_; }
  /// Offset of the parameter's fp32 rows in a rank's accumulators.
  std::size_t accumulator_offset(std::size_t parameter) const {
    return blocks_[parameter].accumulator;
  }
  std::size_t accumulator_bytes() const { return accumulator_bytes_; }
  /// S: the sum of b_p, as byte counters count it.
  std::size_t shard_group_bytes() const { return shard_group_bytes_; }

 private:
  struct Block {
    std::size_t bytes;
    std::size_t elements;
    std::size_t item_size;
    std::size_t published;
    std::size_t accumulator;
    std::vector<std::size_t> rank_elements;
  };
  std::vector<Block> blocks_;
  int world_size_;
  std::size_t published_bytes_ = 0;
  std::size_t accumulator_bytes_ = 0;
  std::size_t shard_group_bytes_ = 0;
};

}  // namespace headrace
