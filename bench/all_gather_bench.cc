#include <cstring>
#include <utility>

#include "bench/lockstep_bench.h"
#include "collective/packed_baseline.h"

namespace headrace::bench {

Result<std::vector<Spans>> all_gather_bench(const RankPlan& plan) {
  HEADRACE_TRY_ASSIGN(auto connected, connect_lockstep(plan));
  HEADRACE_TRY_ASSIGN(const Wired wired,
                      wire(plan, std::move(connected),
                           PackedBaseline::gather_memory_bytes(plan.group, plan.world_size)));
  Session& session = *wired.session;
  RankTensors tensors(plan.group, plan.rank, plan.world_size, {.gradients = false});
  const AddressMap& map = tensors.map();
  for (std::size_t p = 0; p < map.parameters(); ++p) {
    HEADRACE_TRY_ASSIGN(std::byte * resident, session.resident(0, p));
    std::memcpy(resident, tensors.shards()[p].address, map.block_bytes(p));
  }
  PackedBaseline baseline(plan.group, plan.rank, plan.world_size, wired.baseline.get());
  InlineStream stream;

  // In the warm-up, after ours and the baseline: each must have written every byte itself.
  int rounds = 0;
  const auto check = [&]() -> Status {
    if (rounds >= plan.rounds.warm_up) {
      return {};
    }
    if (!tensors.landings_are_right()) {
      return session_error("an all-gather brought wrong bytes");
    }
    tensors.clear_landings();
    return {};
  };
  const auto flat_copy = [&]() -> Status {
    ++rounds;
    for (int step = 0; step < plan.world_size; ++step) {
      const int owner = (plan.rank + step) % plan.world_size;
      const Piece piece{.remote_offset = PackedBaseline::k_shard_offset,
                        .local = tensors.landing_block() +
                                 static_cast<std::size_t>(owner) * map.published_bytes(),
                        .bytes = map.published_bytes()};
      HEADRACE_TRY(wired.baseline->channel(owner).get(stream, {&piece, 1}));
    }
    return {};
  };
  const std::vector<Arm> arms{
      {.name = "all_gather",
       .run = [&] { return session.all_gather(0, tensors.shards(), tensors.landings()); },
       .prepare = nullptr},
      {.name = "packed_baseline",
       .run = [&] { return baseline.all_gather(tensors.shards(), tensors.landings()); },
       .prepare = check},
      {.name = "limit", .run = flat_copy, .prepare = check}};
  return run_wired(plan, wired, tensors, arms, [] { return Status(); });
}

}  // namespace headrace::bench
