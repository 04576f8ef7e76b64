// The lockstep part of a session.

#include <fmt/format.h>

#include <cstring>
#include <string_view>
#include <type_traits>

#include "session/session.h"

namespace headrace {
namespace {

template <class T>
std::string_view bytes_of(const T& value) {
  static_assert(sizeof(T) <= LockstepPlan::k_record_bytes && std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

template <class T>
T from_bytes(const std::string& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

}  // namespace

Status Session::require_lockstep(std::size_t group, const char* call) const {
  HEADRACE_TRY(check());
  if (lockstep_ == nullptr) {
    return operation_error(fmt::format("{} in a session for on-demand alone", call));
  }
  if (phase_ == Phase::finished || (phase_ == Phase::open && !digest_.in_step)) {
    return operation_error(fmt::format("{} inside a bracket that is not in step", call));
  }
  return require_known(group, call);
}

Status Session::agree(const BracketDigest& digest) {
  HEADRACE_TRY_ASSIGN(const std::vector<std::string> all, lockstep_->exchange(bytes_of(digest)));
  for (int rank = 0; rank < config_.world_size; ++rank) {
    const auto theirs = from_bytes<BracketDigest>(all[static_cast<std::size_t>(rank)]);
    HEADRACE_TRY(compare_digests(rank, theirs, digest));
  }
  return {};
}

Result<Settlement> Session::settle_records() {
  HEADRACE_TRY_ASSIGN(const std::vector<std::string> all, lockstep_->exchange(bytes_of(record_)));
  Settlement settlement;
  settlement.touched.resize(plan_.touched_words());
  for (int rank = 0; rank < config_.world_size; ++rank) {
    const auto theirs = from_bytes<BracketRecord>(all[static_cast<std::size_t>(rank)]);
    HEADRACE_TRY(compare_digests(rank, theirs.digest, digest_));
    settlement.add(theirs);
    settlement.touched_by.emplace_back(plan_.touched_words());
  }
  return settlement;
}

Status Session::start_all_gather(std::size_t group, std::span<const ShardSource> shards,
                                 std::span<void* const> landings) {
  HEADRACE_TRY(require_lockstep(group, "all_gather"));
  const AddressMap& map = plan_.map(group);
  if (landings.size() != map.parameters() || shards.size() != map.parameters()) {
    return operation_error(fmt::format("{} shards and {} landings for a group of {} parameters",
                                       shards.size(), landings.size(), map.parameters()));
  }
  const std::uint64_t bytes =
      map.shard_group_bytes() * static_cast<std::uint64_t>(config_.world_size);
  HEADRACE_TRY(start(group, [this, group, bytes, shards = std::vector(shards.begin(), shards.end()),
                             landings = std::vector(landings.begin(), landings.end())] {
    return traced("all_gather", static_cast<int>(group), bytes,
                  [&] { return lockstep_->all_gather(group, shards, landings); });
  }));
  counters_.gather_bytes += bytes;
  counters_.gathers += 1;
  return {};
}

Status Session::all_gather(std::size_t group, std::span<const ShardSource> shards,
                           std::span<void* const> landings) {
  HEADRACE_TRY(start_all_gather(group, shards, landings));
  return wait_gather(group);
}

Result<std::uint64_t> Session::start_reduce_scatter(std::size_t group,
                                                    std::span<const GradientSource> gradients,
                                                    float* output, float alpha, bool accumulate,
                                                    bool earlier) {
  HEADRACE_TRY(require_lockstep(group, "reduce_scatter"));
  HEADRACE_TRY_ASSIGN(const std::uint64_t bytes,
                      gradient_bytes(group, gradients, "reduce-scatter"));
  counters_.push_bytes += bytes;
  counters_.pushes += 1;
  return hand_over(
      worker_.get(), [=, this, gradients = std::vector(gradients.begin(), gradients.end())] {
        return traced("reduce_scatter", static_cast<int>(group), bytes, [&] {
          return lockstep_->reduce_scatter(group, gradients, output, alpha, accumulate, earlier);
        });
      });
}

Status Session::reduce_scatter(std::size_t group, std::span<const GradientSource> gradients,
                               float* output, float alpha, bool accumulate, bool earlier) {
  HEADRACE_TRY_ASSIGN(const std::uint64_t ticket,
                      start_reduce_scatter(group, gradients, output, alpha, accumulate, earlier));
  return wait_pushed(ticket);
}

Result<std::byte*> Session::resident(std::size_t group, std::size_t parameter) {
  HEADRACE_TRY(require_lockstep(group, "resident"));
  if (!lockstep_plan_->adopted(group) || parameter >= plan_.map(group).parameters()) {
    return operation_error(
        fmt::format("parameter {} of group {} has no shard in the arena", parameter, group));
  }
  return transport_->at(lockstep_plan_->resident_offset(group) +
                        plan_.map(group).published_offset(parameter));
}

}  // namespace headrace
