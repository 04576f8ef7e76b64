#include "collective/publish.h"

#include <cstring>
#include <utility>
#include <vector>

#include "kernel/kernels.h"

namespace headrace {
namespace {

Status write_shard(const OnDemand& on_demand, std::size_t group,
                   const std::vector<ShardSource>& sources) {
  const AddressMap& map = on_demand.plan.map(group);
  std::byte* shard = on_demand.transport.at(on_demand.plan.published_shard_offset(group));
  const auto& parameters = on_demand.plan.model().groups[group].parameters;
  std::vector<CastJob> jobs;
  for (std::size_t p = 0; p < sources.size(); ++p) {
    if (sources[p].address != nullptr) {
      jobs.push_back({.to = shard + map.published_offset(p),
                      .to_dtype = parameters[p].dtype,
                      .from = sources[p].address,
                      .from_dtype = sources[p].dtype,
                      .count = map.shard_elements(p, on_demand.rank)});
    }
  }
  return on_demand.transport.kernels().cast(on_demand.stream, std::move(jobs));
}

Status clear_accumulators(const OnDemand& on_demand, std::size_t group, std::size_t slot) {
  const std::size_t bytes = on_demand.plan.map(group).accumulator_bytes();
  return on_demand.transport.kernels().zero(
      on_demand.stream, on_demand.transport.at(on_demand.plan.accumulator_offset(group, slot)),
      bytes, bytes, 1);
}

}  // namespace

Status publish(const OnDemand& on_demand, const BracketDigest& digest,
               const std::vector<std::vector<ShardSource>>& sources,
               const std::vector<std::vector<bool>>& dirty) {
  const OnDemandPlan& plan = on_demand.plan;
  const std::vector<int> ranks = plan.topology().rotation(on_demand.rank);
  for (const int source : ranks) {
    HEADRACE_TRY(on_demand.transport.channel(source).wait(
        on_demand.control, plan.record_signal(source), digest.epoch - 1,
        "end of the bracket before this one"));
  }
  BracketDigest shown = digest;
  const Piece piece{.remote_offset = plan.digest_offset(on_demand.rank, digest.epoch),
                    .local = &shown,
                    .bytes = sizeof shown};
  for (const int reader : ranks) {
    HEADRACE_TRY(on_demand.transport.channel(reader).put(on_demand.control, {&piece, 1}));
  }
  for (std::size_t group = 0; group < plan.groups(); ++group) {
    if (!digest.in_step) {
      for (std::size_t slot = 0; slot < plan.slots(); ++slot) {
        if (dirty[group][slot]) {
          HEADRACE_TRY(clear_accumulators(on_demand, group, slot));
        }
      }
      HEADRACE_TRY(write_shard(on_demand, group, sources[group]));
    }
    for (const int reader : ranks) {
      HEADRACE_TRY(on_demand.transport.channel(reader).signal(
          on_demand.stream, plan.published_signal(on_demand.rank, group), digest.epoch));
    }
  }
  if (digest.in_step) {
    for (const int owner : ranks) {
      HEADRACE_TRY(wait_for_published(on_demand, digest, owner, 0));
    }
  }
  return drain(on_demand);
}

Status wait_for_published(const OnDemand& on_demand, const BracketDigest& digest, int owner,
                          std::size_t group) {
  const OnDemandPlan& plan = on_demand.plan;
  HEADRACE_TRY(on_demand.transport.channel(owner).wait(
      on_demand.control, plan.published_signal(owner, group), digest.epoch, "published shard"));
  const std::size_t slot = plan.digest_offset(owner, digest.epoch);
  return on_demand.control.enqueue([on_demand, digest, owner, slot]() -> Status {
    BracketDigest theirs;
    std::memcpy(&theirs, on_demand.transport.at(slot), sizeof theirs);
    return compare_digests(owner, theirs, digest);
  });
}

}  // namespace headrace
