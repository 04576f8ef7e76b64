// The lockstep part of a session.

#include <fmt/format.h>

#include "session/session.h"

namespace headrace {

Status Session::require_lockstep(std::size_t group, const char* call) const {
  HEADRACE_TRY(check());
  if (lockstep_ == nullptr) {
    return operation_error(fmt::format("{} in a session for on-demand alone", call));
  }
  if (phase_ == Phase::finished || (phase_ == Phase::open && !digest_.in_step)) {
    return operation_error(fmt::format("{} inside a bracket that is not in step", call));
  }
  if (group >= plan_.groups()) {
    return operation_error(
        fmt::format("{} of group {}, but there are {} groups", call, group, plan_.groups()));
  }
  return {};
}

Status Session::all_gather(std::size_t group, std::span<const ShardSource> shards,
                           std::span<void* const> landings) {
  HEADRACE_TRY(require_lockstep(group, "all_gather"));
  const AddressMap& map = plan_.map(group);
  if (landings.size() != map.parameters() || shards.size() != map.parameters()) {
    return operation_error(fmt::format("{} shards and {} landings for a group of {} parameters",
                                       shards.size(), landings.size(), map.parameters()));
  }
  const std::uint64_t bytes =
      map.shard_group_bytes() * static_cast<std::uint64_t>(config_.world_size);
  counters_.gather_bytes += bytes;
  counters_.gathers += 1;
  return traced("all_gather", static_cast<int>(group), bytes,
                [&] { return lockstep_->all_gather(group, shards, landings); });
}

Status Session::reduce_scatter(std::size_t group, std::span<const GradientSource> gradients,
                               float* output, float alpha, bool accumulate, bool earlier) {
  HEADRACE_TRY(require_lockstep(group, "reduce_scatter"));
  const AddressMap& map = plan_.map(group);
  std::uint64_t bytes = 0;
  std::vector<bool> seen(map.parameters(), false);
  for (const GradientSource& gradient : gradients) {
    if (gradient.parameter >= map.parameters()) {
      return operation_error(fmt::format("a gradient of parameter {} in a group of {}",
                                         gradient.parameter, map.parameters()));
    }
    const ParameterSpec& parameter = plan_.model().groups[group].parameters[gradient.parameter];
    if (seen[gradient.parameter]) {
      return operation_error(
          fmt::format("two gradients of parameter {} in one reduce-scatter", parameter.name));
    }
    seen[gradient.parameter] = true;
    bytes += map.landing_bytes(gradient.parameter) / item_size(parameter.dtype) *
             item_size(gradient.dtype);
  }
  counters_.push_bytes += bytes;
  counters_.pushes += 1;
  return traced("reduce_scatter", static_cast<int>(group), bytes, [&] {
    return lockstep_->reduce_scatter(group, gradients, output, alpha, accumulate, earlier);
  });
}

Result<std::byte*> Session::resident(std::size_t group, std::size_t parameter) {
  HEADRACE_TRY(require_lockstep(group, "resident"));
  if (!lockstep_plan_->adopted(group) || parameter >= plan_.map(group).parameters()) {
    return operation_error(
        fmt::format("parameter {} of group {} has no shard in the arena", parameter, group));
  }
  return transport_->memory() + lockstep_plan_->resident_offset(group) +
         plan_.map(group).published_offset(parameter);
}

}  // namespace headrace
