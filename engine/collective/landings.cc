#include "collective/landings.h"

#include <array>
#include <utility>

#include "base/checked_math.h"

namespace headrace {

std::size_t Landings::bytes(const AddressMap& map) {
  std::size_t bytes = 0;
  for (std::size_t p = 0; p < map.parameters(); ++p) {
    bytes += round_up(map.landing_bytes(p), k_alignment);
  }
  return bytes;
}

Result<std::unique_ptr<Landings>> Landings::make(const SlotPlan* plan, std::vector<AddressMap> maps,
                                                 Transport* transport) {
  std::unique_ptr<Landings> landings(new Landings(plan, std::move(maps)));
  for (const LandingSlot& slot : plan->slots()) {
    HEADRACE_TRY_ASSIGN(auto memory, transport->allocate(slot.bytes));
    landings->slots_.push_back({.memory = std::move(memory)});
  }
  return landings;
}

std::vector<void*> Landings::addresses(std::size_t group) {
  std::vector<void*> result;
  std::byte* next = slot_of(group).memory.get();
  const AddressMap& map = maps_[group];
  for (std::size_t p = 0; p < map.parameters(); ++p) {
    result.push_back(next);
    next += round_up(map.landing_bytes(p), k_alignment);
  }
  return result;
}

Result<Landings::Place> Landings::begin(std::size_t group) {
  Slot& slot = slot_of(group);
  if (slot.phase == Phase::used && slot.group == group) {
    return operation_error("a group is gathered again while it is in use");
  }
  if (slot.phase == Phase::used) {
    HEADRACE_TRY(plan_->check_together(std::array{slot.group, group}));
  }
  // What was begun and never used is written over once it has landed.
  Event free = slot.phase == Phase::landed ? slot.ready : slot.free;
  slot.group = group;
  slot.phase = Phase::begun;
  return Place{.parameters = addresses(group), .free = std::move(free)};
}

void Landings::landed(std::size_t group, Event ready) {
  Slot& slot = slot_of(group);
  if (slot.group == group && slot.phase == Phase::begun) {
    slot.phase = Phase::landed;
    slot.ready = std::move(ready);
  }
}

std::optional<Landings::Parameters> Landings::use(std::size_t group) {
  Slot& slot = slot_of(group);
  if (slot.group != group || slot.phase == Phase::empty || slot.phase == Phase::begun) {
    return std::nullopt;
  }
  slot.phase = Phase::used;
  return Parameters{.parameters = addresses(group), .ready = slot.ready};
}

void Landings::release(std::size_t group, Event free) {
  Slot& slot = slot_of(group);
  if (slot.group == group && slot.phase == Phase::used) {
    slot.phase = Phase::empty;
    slot.free = std::move(free);
  }
}

}  // namespace headrace
