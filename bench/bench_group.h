#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collective/on_demand.h"
#include "plan/model_spec.h"

namespace headrace::bench {

/// A group of 30 tensors as two decoder layers have them: large matrices, small ones, and vectors;
/// about `mib` MiB in all.
GroupSpec bench_group(std::int64_t mib, DType dtype);

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

/// One rank's tensors of a group: shards, landings and gradients, each in memory of its own.
class RankTensors {
 public:
  RankTensors(const GroupSpec& group, int rank, int world_size);

  std::span<const ShardSource> shards() const { return shards_; }
  std::span<void* const> landings() const { return landings_; }
  std::span<const GradientSource> gradients() const { return gradients_; }
  const AddressMap& map() const { return map_; }
  /// True where every landing holds what every rank's shards hold.
  bool landings_are_right() const;
  void clear_landings();

 private:
  Buffer& buffer(std::size_t bytes);

  GroupSpec group_;
  AddressMap map_;
  std::vector<Buffer> buffers_;
  std::vector<ShardSource> shards_;
  std::vector<void*> landings_;
  std::vector<GradientSource> gradients_;
};

}  // namespace headrace::bench
