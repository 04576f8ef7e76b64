#include "plan/lockstep_plan.h"

#include <algorithm>
#include <utility>

#include "base/checked_math.h"
#include "plan/all_gather_signals.h"
#include "plan/on_demand_plan.h"

namespace headrace {
namespace {

std::vector<DType> compute_dtypes(const GroupSpec& group) {
  std::vector<DType> dtypes;
  for (const ParameterSpec& parameter : group.parameters) {
    dtypes.push_back(parameter.dtype);
  }
  return dtypes;
}

void grow(ArenaRegions& regions, const ScheduleShape& shape) {
  for (std::size_t i = 0; i < k_regions; ++i) {
    RegionSize& size = regions[i].size;
    size.bytes = std::max(size.bytes, round_up(shape.regions[i].bytes, k_cache_line));
    size.banks = std::max(size.banks, shape.regions[i].banks);
  }
}

}  // namespace

LockstepPlan::LockstepPlan(const Topology& topology, const ModelSpec& model,
                           const LockstepOptions& options)
    : topology_(topology), model_(model), options_(options) {
  model_.groups.push_back({.name = "records",
                           .parameters = {{.name = "record",
                                           .rows = topology_.world_size(),
                                           .row_elements = k_record_bytes / sizeof(float)}}});
  options_.adopted.resize(model_.groups.size(), false);
  options_.adopted.back() = true;
  for (const GroupSpec& group : model_.groups) {
    maps_.emplace_back(group, topology_.world_size());
  }
}

Result<LockstepPlan> LockstepPlan::make(const Topology& topology, const ModelSpec& model,
                                        const LockstepOptions& options, std::size_t begin) {
  LockstepPlan plan(topology, model, options);
  HEADRACE_TRY(plan.lay_out(begin));
  return plan;
}

Status LockstepPlan::lay_out(std::size_t begin) {
  const auto ranks = static_cast<std::size_t>(topology_.world_size());
  for (std::size_t group = 0; group < groups(); ++group) {
    const GroupSpec& spec = model_.groups[group];
    grow(regions_, all_gather_shape(topology_, spec, all_gather_options(group)));
    if (group == record_group()) {
      continue;
    }
    for (const std::vector<DType>& gradients :
         {compute_dtypes(spec), std::vector<DType>(spec.parameters.size(), DType::float32)}) {
      HEADRACE_TRY_ASSIGN(const ScheduleShape shape,
                          reduce_scatter_shape(topology_, spec, reduce_scatter_options(gradients)));
      grow(regions_, shape);
      signal_count_ = std::max(signal_count_, shape.signals);
    }
  }
  std::size_t next = begin;
  const auto take = [&next](std::size_t bytes) {
    const std::size_t at = next;
    next = round_up(next + bytes, k_page);
    return at;
  };
  call_signals_ = take(ranks * k_signal_bytes);
  digests_ = take(ranks * 2 * k_call_digest_bytes);
  signals_ = take(signal_count_ * k_signal_bytes);
  control_end_ = next;
  for (std::size_t group = 0; group < groups(); ++group) {
    resident_.push_back(adopted(group) ? take(maps_[group].published_bytes()) : 0);
  }
  for (const Region region :
       {Region::stage, Region::staging, Region::outbox, Region::inbox, Region::spare}) {
    ArenaRegion& here = regions_[static_cast<std::size_t>(region)];
    here.offset = take(here.size.total());
  }
  end_ = next;
  return {};
}

bool LockstepPlan::adopted(std::size_t group) const { return options_.adopted[group]; }

std::vector<int> LockstepPlan::neighbours(int rank) const {
  std::vector<int> result;
  for (const int other : topology_.rotation(rank)) {
    if (topology_.node_of(other) == topology_.node_of(rank) ||
        topology_.local_of(other) == topology_.local_of(rank)) {
      result.push_back(other);
    }
  }
  return result;
}

std::size_t LockstepPlan::call_signal(int rank) const {
  return call_signals_ + static_cast<std::size_t>(rank) * k_signal_bytes;
}

std::size_t LockstepPlan::digest_offset(int rank, std::uint64_t call) const {
  return digests_ + (static_cast<std::size_t>(rank) * 2 + call % 2) * k_call_digest_bytes;
}

ArenaRegions LockstepPlan::regions(std::size_t group) const {
  ArenaRegions result = regions_;
  result[static_cast<std::size_t>(Region::resident)].offset = resident_[group];
  return result;
}

AllGatherOptions LockstepPlan::all_gather_options(std::size_t group) const {
  AllGatherOptions options = options_.all_gather;
  options.cast = !adopted(group);
  return options;
}

ReduceScatterOptions LockstepPlan::reduce_scatter_options(std::vector<DType> gradients) const {
  ReduceScatterOptions options = options_.reduce_scatter;
  options.gradients = std::move(gradients);
  options.first_signal = static_cast<SignalId>(AllGatherSignals(topology_).count());
  return options;
}

}  // namespace headrace
