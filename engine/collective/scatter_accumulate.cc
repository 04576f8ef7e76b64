#include "collective/scatter_accumulate.h"

#include "collective/publish.h"

namespace headrace {

Status scatter_accumulate(const OnDemand& on_demand, const BracketDigest& digest, std::size_t group,
                          std::span<const GradientSource> gradients,
                          std::vector<std::uint64_t>& sent) {
  const OnDemandPlan& plan = on_demand.plan;
  const AddressMap& map = plan.map(group);
  const AccumulatorRegion region{
      .offset = plan.accumulator_offset(group, plan.slot(on_demand.rank)),
      .bytes = map.accumulator_bytes(),
      .locks_offset = plan.lock_offset(group),
      .chunk_bytes = plan.chunk_bytes(),
      .exclusive = !plan.slots_are_shared()};
  for (const int owner : plan.topology().rotation(on_demand.rank)) {
    HEADRACE_TRY(wait_for_published(on_demand, digest, owner, group));
    std::vector<Addend> addends;
    addends.reserve(gradients.size());
    for (const GradientSource& gradient : gradients) {
      const std::size_t count = map.shard_elements(gradient.parameter, owner);
      if (count > 0) {
        addends.push_back(
            {.remote_offset = region.offset + map.accumulator_offset(gradient.parameter),
             .local = static_cast<const std::byte*>(gradient.address) +
                      map.first_element(gradient.parameter, owner) * item_size(gradient.dtype),
             .dtype = gradient.dtype,
             .count = count});
      }
    }
    Channel& channel = on_demand.transport.channel(owner);
    HEADRACE_TRY(channel.accumulate(on_demand.stream, region, addends));
    const std::uint64_t pushes = ++sent[static_cast<std::size_t>(owner)];
    HEADRACE_TRY(channel.signal(on_demand.stream, plan.added_signal(on_demand.rank), pushes));
  }
  return {};
}

}  // namespace headrace
