#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "collective/on_demand.h"
#include "plan/address_map.h"

namespace headrace {

/// What stock FSDP2 does with one parameter group, on our transport, with persistent buffers and
/// our fastest copies: the fair comparison.
///
/// all_gather: copy the shards into one packed block, exchange blocks into a rank-major buffer,
/// copy every parameter out of it: 2 + 1/N copies of the unsharded group. reduce_scatter: pack the
/// gradients rank-major in fp32, exchange and sum. Every rank waits for all others in both, as in a
/// collective.
class PackedBaseline {
 public:
  /// Bytes of symmetric memory that a transport for this group needs.
  static std::size_t memory_bytes(const GroupSpec& group, int world_size);
  /// Enough where only all_gather is called.
  static std::size_t gather_memory_bytes(const GroupSpec& group, int world_size);
  /// Where this rank's packed shard lies in the symmetric memory.
  static constexpr std::size_t k_shard_offset = 2 * k_page;

  PackedBaseline(const GroupSpec& group, int rank, int world_size, Transport* transport);

  /// `landings[p]` holds N * b_p bytes.
  Status all_gather(std::span<const ShardSource> shards, std::span<void* const> landings);
  /// One whole gradient a parameter, in order; writes this rank's summed rows, packed in fp32 by
  /// the published map.
  Status reduce_scatter(std::span<const GradientSource> gradients, std::span<float> output);

  const AddressMap& map() const { return map_; }

 private:
  Status meet();

  GroupSpec group_;
  AddressMap map_;
  int rank_;
  int world_size_;
  Transport* transport_;
  InlineStream stream_;
  std::uint64_t round_ = 0;
  std::vector<std::byte> gathered_;  ///< rank-major
  std::vector<float> scratch_;       ///< one peer's block of gradients
};

}  // namespace headrace
