#pragma once

#include <cstddef>
#include <vector>

#include "plan/address_map.h"
#include "plan/model_spec.h"
#include "plan/topology.h"

namespace headrace {

/// Sizes of what the control region holds, in bytes. A signal is a 64-bit value and its waiter
/// word.
inline constexpr std::size_t k_signal_bytes = 16;
inline constexpr std::size_t k_cache_line = 64;
inline constexpr std::size_t k_page = 4096;

/// Where everything lies in a rank's on-demand arena. All ranks compute the same plan, so an offset
/// names a place in any peer's arena. Regions, in order, each starting on a page:
///
///   liveness            one page
///   signals             published[owner][group], record[source], added[source]
///   digests             [owner][epoch mod 2]
///   records             [source][epoch mod 2]: a fixed part, then one touched bit a parameter
///   locks               one 32-bit word a chunk of every group's accumulators
///   published shards    group after group
///   accumulators        group after group, fp32
class OnDemandPlan {
 public:
  OnDemandPlan(Topology topology, ModelSpec model, std::size_t chunk_bytes);

  const Topology& topology() const { return topology_; }
  const ModelSpec& model() const { return model_; }
  const AddressMap& map(std::size_t group) const { return maps_[group]; }
  std::size_t groups() const { return maps_.size(); }
  std::size_t chunk_bytes() const { return chunk_bytes_; }

  std::size_t liveness_offset() const { return 0; }
  std::size_t published_signal(int owner, std::size_t group) const;
  std::size_t record_signal(int source) const;
  std::size_t added_signal(int source) const;
  std::size_t digest_offset(int owner, std::uint64_t epoch) const;
  std::size_t record_offset(int source, std::uint64_t epoch) const;
  /// Words of the touched mask: bit i of the mask is parameter i, counted over all groups in order.
  std::size_t touched_words() const { return touched_words_; }
  std::size_t first_parameter(std::size_t group) const { return first_parameter_[group]; }
  std::size_t lock_offset(std::size_t group) const { return lock_offsets_[group]; }
  std::size_t published_shard_offset(std::size_t group) const { return published_[group]; }
  std::size_t accumulator_offset(std::size_t group) const { return accumulators_[group]; }
  /// All of the arena, a multiple of the page size.
  std::size_t bytes() const { return bytes_; }

  /// Bytes of a digest slot and of the fixed part of a record.
  static constexpr std::size_t k_digest_bytes = k_cache_line;
  static constexpr std::size_t k_record_bytes = 2 * k_cache_line;

 private:
  Topology topology_;
  ModelSpec model_;
  std::size_t chunk_bytes_;
  std::vector<AddressMap> maps_;
  std::vector<std::size_t> first_parameter_;
  std::size_t touched_words_ = 0;
  std::size_t signals_ = 0;
  std::size_t digests_ = 0;
  std::size_t records_ = 0;
  std::size_t record_stride_ = 0;
  std::vector<std::size_t> lock_offsets_;
  std::vector<std::size_t> published_;
  std::vector<std::size_t> accumulators_;
  std::size_t bytes_ = 0;
};

}  // namespace headrace
