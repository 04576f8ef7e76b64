#include "collective/packed_baseline.h"

#include "base/checked_math.h"
#include "kernel/accumulate.h"
#include "kernel/cast.h"
#include "kernel/copy.h"
#include "transport/meet.h"

namespace headrace {
namespace {

// In the symmetric memory: the liveness page, a page of signals, this rank's packed shard, its
// packed gradients.
constexpr std::size_t k_signals = k_page;

std::size_t gradients_offset(const AddressMap& map) {
  return PackedBaseline::k_shard_offset + round_up(map.published_bytes(), k_page);
}

}  // namespace

std::size_t PackedBaseline::memory_bytes(const GroupSpec& group, int world_size) {
  const AddressMap map(group, world_size);
  return round_up(
      gradients_offset(map) + static_cast<std::size_t>(world_size) * map.accumulator_bytes(),
      k_page);
}

std::size_t PackedBaseline::gather_memory_bytes(const GroupSpec& group, int world_size) {
  return gradients_offset(AddressMap(group, world_size));
}

PackedBaseline::PackedBaseline(const GroupSpec& group, int rank, int world_size,
                               Transport* transport)
    : group_(group),
      map_(group, world_size),
      rank_(rank),
      world_size_(world_size),
      transport_(transport),
      gathered_(static_cast<std::size_t>(world_size) * map_.published_bytes()) {}

Status PackedBaseline::meet() {
  return headrace::meet(*transport_, stream_, rank_, world_size_, k_signals, ++round_,
                        "part of the collective");
}

Status PackedBaseline::all_gather(std::span<const ShardSource> shards,
                                  std::span<void* const> landings) {
  std::byte* packed = transport_->at(k_shard_offset);
  for (std::size_t p = 0; p < shards.size(); ++p) {
    cast(packed + map_.published_offset(p), group_.parameters[p].dtype, shards[p].address,
         shards[p].dtype, map_.shard_elements(p, rank_));
  }
  HEADRACE_TRY(meet());
  for (int peer = 0; peer < world_size_; ++peer) {
    const Piece block{
        .remote_offset = k_shard_offset,
        .local = gathered_.data() + static_cast<std::size_t>(peer) * map_.published_bytes(),
        .bytes = map_.published_bytes()};
    HEADRACE_TRY(transport_->channel(peer).get(stream_, {&block, 1}));
  }
  HEADRACE_TRY(meet());
  for (int peer = 0; peer < world_size_; ++peer) {
    const std::byte* block =
        gathered_.data() + static_cast<std::size_t>(peer) * map_.published_bytes();
    for (std::size_t p = 0; p < landings.size(); ++p) {
      copy_streaming(static_cast<std::byte*>(landings[p]) + map_.landing_offset(p, peer),
                     block + map_.published_offset(p), map_.block_bytes(p));
    }
  }
  return {};
}

Status PackedBaseline::reduce_scatter(std::span<const GradientSource> gradients,
                                      std::span<float> output) {
  std::byte* packed = transport_->at(gradients_offset(map_));
  for (int owner = 0; owner < world_size_; ++owner) {
    for (const GradientSource& gradient : gradients) {
      const std::size_t p = gradient.parameter;
      cast(packed + static_cast<std::size_t>(owner) * map_.accumulator_bytes() +
               map_.accumulator_offset(p),
           DType::float32,
           static_cast<const std::byte*>(gradient.address) +
               map_.first_element(p, owner) * item_size(gradient.dtype),
           gradient.dtype, map_.shard_elements(p, owner));
    }
  }
  HEADRACE_TRY(meet());
  const std::size_t mine =
      gradients_offset(map_) + static_cast<std::size_t>(rank_) * map_.accumulator_bytes();
  // The exchange: every peer's block for this rank, then their sum in rank order.
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer == 0) {
      const Piece block{
          .remote_offset = mine, .local = output.data(), .bytes = map_.accumulator_bytes()};
      HEADRACE_TRY(transport_->channel(peer).get(stream_, {&block, 1}));
      continue;
    }
    scratch_.resize(output.size());
    const Piece block{
        .remote_offset = mine, .local = scratch_.data(), .bytes = map_.accumulator_bytes()};
    HEADRACE_TRY(transport_->channel(peer).get(stream_, {&block, 1}));
    accumulate(output.data(), scratch_.data(), DType::float32, output.size());
  }
  return meet();
}

}  // namespace headrace
