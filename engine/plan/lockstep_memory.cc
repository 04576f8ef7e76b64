#include "plan/lockstep_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked_math.h"

namespace headrace {
namespace {

// The outbox and the spare belong to one of two calls in flight.
constexpr std::size_t k_call_banks = 2;

Status validate(const WavePlan& waves, const MemoryRequest& request) {
  if (request.shard_elements == 0 || request.landing_slots < 1 || request.staging_slots < 1) {
    return operation_error(fmt::format(
        "a shard and the numbers of landing and staging slots must be above 0, not {} elements, {} "
        "and {}",
        request.shard_elements, request.landing_slots, request.staging_slots));
  }
  if (request.mode == GradientMode::slot_reuse &&
      item_size(request.gradient) > item_size(request.gather)) {
    return operation_error(fmt::format(
        "{} gradients do not fit the landing of {} parameters, so slot reuse cannot copy them "
        "there; choose in-place mode",
        to_string(request.gradient), to_string(request.gather)));
  }
  // No region has more banks, or more bytes, than all of these together.
  const std::int64_t banks =
      8L + request.landing_slots + request.staging_slots + waves.options().passes;
  HEADRACE_TRY_ASSIGN(const std::int64_t padded,
                      checked_add(static_cast<std::int64_t>(request.shard_elements),
                                  static_cast<std::int64_t>(request.alignment) *
                                      waves.topology().local_ranks() * waves.options().passes));
  HEADRACE_TRY_ASSIGN(const std::int64_t elements,
                      checked_mul(padded, waves.topology().world_size()));
  HEADRACE_TRY(checked_mul(elements, 8 * banks));
  return {};
}

}  // namespace

Result<LockstepMemory> lockstep_memory(const WavePlan& waves, const MemoryRequest& request) {
  HEADRACE_TRY(validate(waves, request));
  const auto nodes = static_cast<std::size_t>(waves.topology().nodes());
  const auto local_ranks = static_cast<std::size_t>(waves.topology().local_ranks());
  const auto passes = static_cast<std::size_t>(waves.options().passes);
  const auto staging_slots = static_cast<std::size_t>(request.staging_slots);
  const auto generations = static_cast<std::size_t>(waves.generations());
  const bool is_in_place = request.mode == GradientMode::in_place;

  const std::size_t ranks = nodes * local_ranks;
  const std::size_t shard = request.shard_elements * item_size(request.gather);
  const std::size_t gradient_shard = request.shard_elements * item_size(request.gradient);
  const std::size_t output = request.shard_elements * item_size(DType::float32);
  const std::size_t sub_slice =
      round_up(static_cast<std::size_t>(ceil_div(static_cast<std::int64_t>(request.shard_elements),
                                                 static_cast<std::int64_t>(local_ranks * passes))) *
                   item_size(request.gradient),
               request.alignment) /
      item_size(request.gradient);
  const std::size_t block = local_ranks * sub_slice * item_size(DType::float32);

  LockstepMemory memory;
  const auto set = [&memory](Region region, std::size_t bytes, std::size_t banks) {
    memory.regions[static_cast<std::size_t>(region)] = {.bytes = bytes, .banks = banks};
  };
  set(Region::landing, ranks * shard, static_cast<std::size_t>(request.landing_slots));
  set(Region::stage, (request.cast ? nodes : nodes - 1) * shard, 1);
  set(Region::resident, shard, request.cast ? 0 : 1);
  set(Region::staging, (local_ranks - 1) * local_ranks * sub_slice * item_size(request.gradient),
      staging_slots);
  set(Region::outbox, static_cast<std::size_t>(waves.outbox_blocks(request.mode)) * block,
      k_call_banks);
  set(Region::inbox, local_ranks * block, generations);
  set(Region::spare, passes * block, k_call_banks);
  set(Region::output, output, 1);
  set(Region::gradient, ranks * gradient_shard, is_in_place ? 1 : 0);
  set(Region::shard, 0, 0);

  memory.unsharded_bytes = ranks * shard;
  memory.reduce_scatter_bytes = memory[Region::staging].total() + memory[Region::outbox].total() +
                                memory[Region::inbox].total() + memory[Region::spare].total();
  const std::size_t outbox_bound =
      is_in_place ? nodes - 1 : 2 * static_cast<std::size_t>(waves.options().transfers);
  memory.reduce_scatter_bound =
      local_ranks * staging_slots * gradient_shard +
      (local_ranks * generations + k_call_banks * outbox_bound + k_call_banks) * output;
  const std::size_t held = memory[Region::landing].total() + memory[Region::gradient].total();
  memory.backward_bytes = held + memory[Region::stage].total() + memory.reduce_scatter_bytes;
  memory.backward_bound = held + nodes * shard + memory.reduce_scatter_bound;
  memory.stock_bytes = 2 * memory.unsharded_bytes + ranks * output;
  return memory;
}

}  // namespace headrace
