#include "plan/slot_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace headrace {

Result<SlotPlan> SlotPlan::make(std::vector<SlotGroup> groups, SlotOptions options) {
  if (groups.empty() || options.ring_slots < 1) {
    return operation_error(
        fmt::format("landing slots need at least one group and one slot in the ring, not {} and {}",
                    groups.size(), options.ring_slots));
  }
  return SlotPlan(std::move(groups), options);
}

SlotPlan::SlotPlan(std::vector<SlotGroup> groups, SlotOptions options)
    : groups_(std::move(groups)), options_(options), slot_of_(groups_.size()) {
  const auto joins_ring = [this](std::size_t group) {
    const bool is_folded =
        group + 1 == groups_.size() && groups_[group].residency == Residency::stays;
    return groups_[group].residency == Residency::ring || is_folded;
  };
  std::size_t in_ring = 0;
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    if (joins_ring(group)) {
      const std::size_t slot = in_ring % options_.ring_slots;
      if (slot == slots_.size()) {
        slots_.push_back({.in_ring = true});
      }
      slots_[slot].bytes = std::max(slots_[slot].bytes, groups_[group].bytes);
      slot_of_[group] = slot;
      ++in_ring;
    }
  }
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    if (!joins_ring(group)) {
      slot_of_[group] = slots_.size();
      slots_.push_back({.bytes = groups_[group].bytes});
    }
  }
}

std::size_t SlotPlan::bytes() const {
  std::size_t sum = 0;
  for (const LandingSlot& slot : slots_) {
    sum += slot.bytes;
  }
  return sum;
}

Status SlotPlan::check_together(std::span<const std::size_t> groups) const {
  constexpr std::size_t k_none = -1;
  std::vector<std::size_t> holder(slots_.size(), k_none);
  for (const std::size_t group : groups) {
    std::size_t& held_by = holder[slot_of_[group]];
    if (held_by != k_none) {
      return operation_error(fmt::format(
          "groups {} and {} are asked for at the same time but share landing slot {}: the ring "
          "holds {} groups that follow each other; prefetch fewer, or allow more ring slots",
          groups_[held_by].name, groups_[group].name, slot_of_[group], options_.ring_slots));
    }
    held_by = group;
  }
  return {};
}

}  // namespace headrace
