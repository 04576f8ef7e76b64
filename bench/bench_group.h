#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collective/on_demand.h"
#include "plan/model_spec.h"

namespace headrace::bench {

/// Tensors of a decoder layer: 8 matrices, then 7 vectors.
inline constexpr int k_layer_matrices = 8;
inline constexpr int k_layer_tensors = 15;

/// A group of the first tensors of two decoder layers, large matrices first: 30 tensors or, without
/// the vectors, 16; about `mib` MiB in all.
GroupSpec bench_group(std::int64_t mib, DType dtype, int tensors_a_layer = k_layer_tensors);

/// 64-byte aligned, written once, so that no page is touched for the first time while a clock runs.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes);
  std::byte* data() const { return data_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t bytes_;
};

/// What a benchmark needs beside the shards.
struct Needs {
  bool landings = true;
  bool gradients = true;
};

/// One rank's tensors of a group: shards, landings and gradients, aligned to cache lines. The
/// landings lie one after the other in one block.
class RankTensors {
 public:
  RankTensors(const GroupSpec& group, int rank, int world_size, Needs needs = {});

  std::span<const ShardSource> shards() const { return shards_; }
  std::span<void* const> landings() const { return landings_; }
  std::span<const GradientSource> gradients() const { return gradients_; }
  const AddressMap& map() const { return map_; }
  /// The memory of all landings: at least N published shards.
  std::byte* landing_block() const { return landing_block_; }
  /// True where every landing holds what every rank's shards hold.
  bool landings_are_right() const;
  void clear_landings();

 private:
  Buffer& buffer(std::size_t bytes);

  GroupSpec group_;
  AddressMap map_;
  std::vector<Buffer> buffers_;
  std::vector<ShardSource> shards_;
  std::byte* landing_block_ = nullptr;
  std::vector<void*> landings_;
  std::vector<GradientSource> gradients_;
};

}  // namespace headrace::bench
