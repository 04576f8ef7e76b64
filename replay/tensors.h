#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "bench/bench_group.h"
#include "collective/on_demand.h"
#include "plan/model_spec.h"

namespace headrace::replay {

/// One rank's memory of a replayed model: fp32 shards and summed gradients of every group, and
/// unsharded memory in two slots that layers take in turn, as a freeing allocator would give it
/// them; the root has its own. All layers have the same shapes. Every page has been written.
class Tensors {
 public:
  Tensors(const ModelSpec& model, int rank, int world_size);

  const std::vector<std::vector<ShardSource>>& shards() const { return shards_; }
  /// Of the root, or of a layer in one of the slots.
  std::span<void* const> landings(std::size_t group, std::size_t slot) const;
  std::span<const GradientSource> gradients(std::size_t group, std::size_t slot) const;
  /// This rank's rows of the summed gradients, packed as accumulators are.
  std::span<float> sums(std::size_t group);
  const AddressMap& map(std::size_t group) const { return maps_[group]; }
  std::size_t groups() const { return maps_.size(); }
  int world_size() const { return world_size_; }

  /// Whether the landings hold what every rank's shards hold.
  bool landings_are_right(std::size_t group, std::size_t slot) const;
  /// Whether the sums are those of so many backwards over all ranks. Every gradient is 1.
  bool sums_are(float backwards) const;

  static constexpr std::size_t k_slots = 2;

 private:
  /// Unsharded memory of one group at a time.
  struct Unsharded {
    std::vector<bench::Buffer> buffers;
    std::vector<void*> landings;
    std::vector<GradientSource> gradients;
  };
  Unsharded make_unsharded(std::size_t group) const;
  const Unsharded& unsharded(std::size_t group, std::size_t slot) const;
  /// What every element of a parameter is: a small integer, which bf16 holds exactly.
  static float value(std::size_t group, std::size_t parameter);

  const ModelSpec& model_;
  int rank_;
  int world_size_;
  std::vector<AddressMap> maps_;
  std::vector<bench::Buffer> buffers_;
  std::vector<std::vector<ShardSource>> shards_;
  std::vector<std::vector<float>> sums_;
  Unsharded root_;
  std::array<Unsharded, k_slots> slots_;
};

/// Bytes that one rank takes, shared memory of its sessions left out.
std::size_t tensor_bytes(const ModelSpec& model, int world_size);

}  // namespace headrace::replay
