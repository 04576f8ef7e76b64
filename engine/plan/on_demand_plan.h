#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
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

/// In which order an owner adds what ranks push to it.
enum class Accumulation {
  arrival,       ///< as it arrives, into one slot: not the same bits in every run
  reproducible,  ///< into a slot a source, in the source's own order; settle adds the slots in rank
                 ///< order: the same bits whenever who arrives
};
const char* to_string(Accumulation accumulation);

/// Where everything lies in a rank's on-demand arena. All ranks compute the same plan, so an offset
/// names a place in any peer's arena. Regions, in order, each starting on a page; up to control_end
/// is what processors touch:
///
///   liveness            one page
///   signals             published[owner][group], record[source], added[source]
///   digests             [owner][epoch mod 2]
///   records             [source][epoch mod 2]: a fixed part, then one touched bit a parameter
///   locks               one 32-bit word a chunk of every group's accumulators; none where every
///                       source has a slot of its own
///   published shards    group after group
///   accumulators        group after group, in each slot after slot, fp32
class OnDemandPlan {
 public:
  /// Shards and accumulators begin at `data_begin`, a multiple of the page size; 0: at control_end.
  OnDemandPlan(Topology topology, ModelSpec model, std::size_t chunk_bytes,
               Accumulation accumulation = Accumulation::arrival, std::size_t data_begin = 0);

  const Topology& topology() const { return topology_; }
  const ModelSpec& model() const { return model_; }
  const AddressMap& map(std::size_t group) const { return maps_[group]; }
  std::size_t groups() const { return maps_.size(); }
  std::size_t chunk_bytes() const { return chunk_bytes_; }
  Accumulation accumulation() const { return accumulation_; }
  /// Whether several sources add to one slot, under locks.
  bool slots_are_shared() const { return accumulation_ == Accumulation::arrival; }
  /// Slots of accumulators an owner keeps of each group: one, or one a source.
  std::size_t slots() const;
  /// The slot to which `source` adds. After settle, slot 0 holds the sum of all.
  std::size_t slot(int source) const;

  std::size_t liveness_offset() const { return 0; }
  std::size_t published_signal(int owner, std::size_t group) const;
  std::size_t record_signal(int source) const;
  std::size_t added_signal(int source) const;
  std::size_t digest_offset(int owner, std::uint64_t epoch) const;
  std::size_t record_offset(int source, std::uint64_t epoch) const;
  /// Words of the touched mask: bit i of the mask is parameter i, counted over all groups in order.
  std::size_t touched_words() const { return touched_words_; }
  std::size_t first_parameter(std::size_t group) const { return first_parameter_[group]; }
  bool touches(std::span<const std::uint64_t> mask, std::size_t group, std::size_t parameter) const;
  std::size_t lock_offset(std::size_t group) const { return lock_offsets_[group]; }
  std::size_t published_shard_offset(std::size_t group) const { return published_[group]; }
  std::size_t accumulator_offset(std::size_t group, std::size_t slot) const;
  std::size_t control_end() const { return control_end_; }
  /// All of the arena, a multiple of the page size.
  std::size_t bytes() const { return bytes_; }

  /// Bytes of a digest slot and of the fixed part of a record.
  static constexpr std::size_t k_digest_bytes = k_cache_line;
  static constexpr std::size_t k_record_bytes = 2 * k_cache_line;

 private:
  Topology topology_;
  ModelSpec model_;
  std::size_t chunk_bytes_;
  Accumulation accumulation_;
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
  std::size_t control_end_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace headrace
