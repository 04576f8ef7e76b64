#include "plan/address_map.h"

#include <algorithm>

#include "base/checked_math.h"
#include "plan/shard_layout.h"

namespace headrace {
namespace {
constexpr std::size_t k_block_alignment = 16;
}

AddressMap::AddressMap(const GroupSpec& group, int world_size) : world_size_(world_size) {
  for (const ParameterSpec& parameter : group.parameters) {
    const ShardLayout layout(parameter, world_size);
    Block block;
    block.elements = static_cast<std::size_t>(layout.padded_elements());
    block.item_size = item_size(parameter.dtype);
    block.bytes = block.elements * block.item_size;
    block.published = published_bytes_;
    block.accumulator = accumulator_bytes_;
    for (int rank = 0; rank < world_size; ++rank) {
      block.rank_elements.push_back(static_cast<std::size_t>(layout.elements(rank)));
    }
    published_bytes_ += round_up(block.bytes, k_block_alignment);
    accumulator_bytes_ += round_up(block.elements * sizeof(float), k_block_alignment);
    shard_group_bytes_ += block.bytes;
    blocks_.push_back(std::move(block));
  }
}

std::size_t AddressMap::shard_bytes(std::size_t parameter, int rank) const {
  return shard_elements(parameter, rank) * blocks_[parameter].item_size;
}

std::size_t AddressMap::shard_elements(std::size_t parameter, int rank) const {
  return blocks_[parameter].rank_elements[static_cast<std::size_t>(rank)];
}

std::size_t AddressMap::landing_bytes(std::size_t parameter) const {
  return static_cast<std::size_t>(world_size_) * blocks_[parameter].bytes;
}

std::size_t AddressMap::first_element(std::size_t parameter, int rank) const {
  // Where a rank's rows all lie past D_p the first element is clipped, as its row range is.
  std::size_t first = 0;
  for (int before = 0; before < rank; ++before) {
    first += blocks_[parameter].rank_elements[static_cast<std::size_t>(before)];
  }
  return first;
}

}  // namespace headrace
