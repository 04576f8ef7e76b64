#include "collective/settle.h"

#include <array>
#include <cstring>
#include <utility>

#include "collective/sum_slots.h"

namespace headrace {

void Settlement::add(const BracketRecord& record) {
  loss_sum += record.loss_sum;
  weight += record.weight;
  flags |= record.flags;
}

Status finish(const OnDemand& on_demand, BracketRecord record,
              std::span<const std::uint64_t> touched, std::span<const std::uint64_t> sent) {
  const OnDemandPlan& plan = on_demand.plan;
  const std::uint64_t epoch = record.digest.epoch;
  const std::size_t slot = plan.record_offset(on_demand.rank, epoch);
  std::vector<std::uint64_t> mask(touched.begin(), touched.end());
  for (const int owner : plan.topology().rotation(on_demand.rank)) {
    record.pushes_sent = sent[static_cast<std::size_t>(owner)];
    const std::array<Piece, 2> pieces{
        Piece{.remote_offset = slot, .local = &record, .bytes = sizeof record},
        Piece{.remote_offset = slot + OnDemandPlan::k_record_bytes,
              .local = mask.data(),
              .bytes = mask.size() * sizeof(std::uint64_t)}};
    Channel& channel = on_demand.transport.channel(owner);
    HEADRACE_TRY(channel.put(on_demand.control, pieces));
    HEADRACE_TRY(channel.signal(on_demand.control, plan.record_signal(on_demand.rank), epoch));
    HEADRACE_TRY(drain(on_demand));
  }
  return {};
}

Result<Settlement> settle(const OnDemand& on_demand, const BracketDigest& digest) {
  const OnDemandPlan& plan = on_demand.plan;
  Settlement settlement;
  settlement.touched.resize(plan.touched_words());
  for (int source = 0; source < plan.topology().world_size(); ++source) {
    Channel& channel = on_demand.transport.channel(source);
    HEADRACE_TRY(channel.wait(on_demand.control, plan.record_signal(source), digest.epoch,
                              "end of the minibatch"));
    HEADRACE_TRY(drain(on_demand));
    BracketRecord record;
    const std::byte* slot = on_demand.transport.at(plan.record_offset(source, digest.epoch));
    std::memcpy(&record, slot, sizeof record);
    HEADRACE_TRY(compare_digests(source, record.digest, digest));
    HEADRACE_TRY(channel.wait(on_demand.control, plan.added_signal(source), record.pushes_sent,
                              "last contributions"));
    HEADRACE_TRY(drain(on_demand));
    settlement.add(record);
    std::vector<std::uint64_t> mask(plan.touched_words());
    std::memcpy(mask.data(), slot + OnDemandPlan::k_record_bytes,
                mask.size() * sizeof(std::uint64_t));
    for (std::size_t word = 0; word < mask.size(); ++word) {
      settlement.touched[word] |= mask[word];
    }
    settlement.touched_by.push_back(std::move(mask));
  }
  HEADRACE_TRY(sum_slots(on_demand, settlement.touched_by));
  HEADRACE_TRY(drain(on_demand));
  return settlement;
}

}  // namespace headrace
