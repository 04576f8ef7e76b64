#include "replay/tensors.h"

#include <algorithm>

#include "kernel/cast.h"
#include "replay/decoder.h"

namespace headrace::replay {
namespace {

void fill(std::byte* destination, DType dtype, std::size_t elements, float value) {
  const std::vector<float> values(elements, value);
  cast(destination, dtype, values.data(), DType::float32, elements);
}

std::size_t unsharded_bytes(const AddressMap& map) {
  std::size_t bytes = 0;
  for (std::size_t p = 0; p < map.parameters(); ++p) {
    bytes += map.landing_bytes(p);
  }
  return bytes;
}

}  // namespace

Tensors::Tensors(const ModelSpec& model, int rank, int world_size)
    : model_(model), rank_(rank), world_size_(world_size) {
  for (std::size_t group = 0; group < model.groups.size(); ++group) {
    const AddressMap& map = maps_.emplace_back(model.groups[group], world_size);
    std::vector<ShardSource>& shards = shards_.emplace_back();
    for (std::size_t p = 0; p < map.parameters(); ++p) {
      const std::size_t count = map.shard_elements(p, rank);
      const bench::Buffer& shard = buffers_.emplace_back(count * sizeof(float));
      fill(shard.data(), DType::float32, count, value(group, p));
      shards.push_back({.address = shard.data(), .dtype = DType::float32});
    }
    sums_.emplace_back(map.accumulator_bytes() / sizeof(float));
  }
  root_ = make_unsharded(k_root);
  for (Unsharded& slot : slots_) {
    slot = make_unsharded(k_root + 1);
  }
}

Tensors::Unsharded Tensors::make_unsharded(std::size_t group) const {
  Unsharded memory;
  for (std::size_t p = 0; p < maps_[group].parameters(); ++p) {
    const DType dtype = model_.groups[group].parameters[p].dtype;
    const std::size_t bytes = maps_[group].landing_bytes(p);
    memory.landings.push_back(memory.buffers.emplace_back(bytes).data());
    const bench::Buffer& gradient = memory.buffers.emplace_back(bytes);
    fill(gradient.data(), dtype, bytes / item_size(dtype), 1.0F);
    memory.gradients.push_back({.parameter = p, .address = gradient.data(), .dtype = dtype});
  }
  return memory;
}

const Tensors::Unsharded& Tensors::unsharded(std::size_t group, std::size_t slot) const {
  return group == k_root ? root_ : slots_[slot];
}

std::span<void* const> Tensors::landings(std::size_t group, std::size_t slot) const {
  return unsharded(group, slot).landings;
}

std::span<const GradientSource> Tensors::gradients(std::size_t group, std::size_t slot) const {
  return unsharded(group, slot).gradients;
}

std::span<float> Tensors::sums(std::size_t group) { return sums_[group]; }

float Tensors::value(std::size_t group, std::size_t parameter) {
  return static_cast<float>(1 + (group * 31 + parameter * 7) % 100);
}

bool Tensors::landings_are_right(std::size_t group, std::size_t slot) const {
  const AddressMap& map = maps_[group];
  for (std::size_t p = 0; p < map.parameters(); ++p) {
    const ParameterSpec& parameter = model_.groups[group].parameters[p];
    std::vector<float> values(static_cast<std::size_t>(parameter.rows * parameter.row_elements));
    cast(values.data(), DType::float32, landings(group, slot)[p], parameter.dtype, values.size());
    if (!std::ranges::all_of(values, [&](float v) { return v == value(group, p); })) {
      return false;
    }
  }
  return true;
}

bool Tensors::sums_are(float backwards) const {
  for (std::size_t group = 0; group < maps_.size(); ++group) {
    for (std::size_t p = 0; p < maps_[group].parameters(); ++p) {
      const std::size_t first = maps_[group].accumulator_offset(p) / sizeof(float);
      const float* sums = &sums_[group][first];
      if (!std::all_of(sums, sums + maps_[group].shard_elements(p, rank_),
                       [&](float sum) { return sum == backwards; })) {
        return false;
      }
    }
  }
  return true;
}

std::size_t tensor_bytes(const ModelSpec& model, int world_size) {
  std::size_t bytes = 0;
  for (std::size_t group = 0; group < model.groups.size(); ++group) {
    const AddressMap map(model.groups[group], world_size);
    bytes += 2 * map.accumulator_bytes();  // shards and sums
    const std::size_t slots = group == k_root ? 1 : group == k_root + 1 ? Tensors::k_slots : 0;
    bytes += slots * 2 * unsharded_bytes(map);  // landings and gradients
  }
  return bytes;
}

}  // namespace headrace::replay
