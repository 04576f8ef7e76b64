#include "plan/on_demand_plan.h"

#include <utility>

#include "base/checked_math.h"

namespace headrace {

const char* to_string(Accumulation accumulation) {
  return accumulation == Accumulation::arrival ? "arrival" : "reproducible";
}

OnDemandPlan::OnDemandPlan(Topology topology, ModelSpec model, std::size_t chunk_bytes,
                           Accumulation accumulation, std::size_t data_begin)
    : topology_(topology),
      model_(std::move(model)),
      chunk_bytes_(chunk_bytes),
      accumulation_(accumulation) {
  const auto ranks = static_cast<std::size_t>(topology_.world_size());
  std::size_t parameters = 0;
  for (const GroupSpec& group : model_.groups) {
    maps_.emplace_back(group, topology_.world_size());
    first_parameter_.push_back(parameters);
    parameters += group.parameters.size();
  }
  touched_words_ = (parameters + 63) / 64;

  std::size_t next = k_page;
  const auto take = [&next](std::size_t bytes) {
    const std::size_t at = next;
    next = round_up(next + bytes, k_page);
    return at;
  };
  signals_ = take(ranks * (groups() + 2) * k_signal_bytes);
  digests_ = take(ranks * 2 * k_digest_bytes);
  record_stride_ = round_up(k_record_bytes + touched_words_ * sizeof(std::uint64_t), k_cache_line);
  records_ = take(ranks * 2 * record_stride_);

  std::size_t lock_words = 0;
  for (const AddressMap& map : maps_) {
    lock_offsets_.push_back(lock_words * sizeof(std::uint32_t));
    if (slots_are_shared()) {
      lock_words += (map.accumulator_bytes() + chunk_bytes_ - 1) / chunk_bytes_;
    }
  }
  const std::size_t locks = take(lock_words * sizeof(std::uint32_t));
  for (std::size_t& offset : lock_offsets_) {
    offset += locks;
  }
  control_end_ = next;
  next = data_begin == 0 ? control_end_ : data_begin;
  for (const AddressMap& map : maps_) {
    published_.push_back(take(map.published_bytes()));
  }
  for (const AddressMap& map : maps_) {
    accumulators_.push_back(take(slots() * round_up(map.accumulator_bytes(), k_page)));
  }
  bytes_ = next;
}

std::size_t OnDemandPlan::slots() const {
  return slots_are_shared() ? 1 : static_cast<std::size_t>(topology_.world_size());
}

std::size_t OnDemandPlan::slot(int source) const {
  return slots_are_shared() ? 0 : static_cast<std::size_t>(source);
}

std::size_t OnDemandPlan::accumulator_offset(std::size_t group, std::size_t slot) const {
  return accumulators_[group] + slot * round_up(maps_[group].accumulator_bytes(), k_page);
}

bool OnDemandPlan::touches(std::span<const std::uint64_t> mask, std::size_t group,
                           std::size_t parameter) const {
  const std::size_t bit = first_parameter(group) + parameter;
  return (mask[bit / 64] >> (bit % 64) & 1) != 0;
}

std::size_t OnDemandPlan::published_signal(int owner, std::size_t group) const {
  return signals_ + (static_cast<std::size_t>(owner) * groups() + group) * k_signal_bytes;
}

std::size_t OnDemandPlan::record_signal(int source) const {
  const auto published = static_cast<std::size_t>(topology_.world_size()) * groups();
  return signals_ + (published + static_cast<std::size_t>(source)) * k_signal_bytes;
}

std::size_t OnDemandPlan::added_signal(int source) const {
  return record_signal(source) + static_cast<std::size_t>(topology_.world_size()) * k_signal_bytes;
}

std::size_t OnDemandPlan::digest_offset(int owner, std::uint64_t epoch) const {
  return digests_ + (static_cast<std::size_t>(owner) * 2 + epoch % 2) * k_digest_bytes;
}

std::size_t OnDemandPlan::record_offset(int source, std::uint64_t epoch) const {
  return records_ + (static_cast<std::size_t>(source) * 2 + epoch % 2) * record_stride_;
}

}  // namespace headrace
