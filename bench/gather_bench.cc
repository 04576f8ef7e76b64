#include "bench/gather_bench.h"

#include <utility>

#include "collective/packed_baseline.h"

namespace headrace::bench {

Result<std::vector<Spans>> gather_bench(const RankPlan& plan) {
  HEADRACE_TRY_ASSIGN(auto connected, connect(plan, Accumulation::arrival));
  HEADRACE_TRY_ASSIGN(
      const Wired wired,
      wire(plan, std::move(connected), PackedBaseline::memory_bytes(plan.group, plan.world_size)));
  Session& session = *wired.session;
  RankTensors tensors(plan.group, plan.rank, plan.world_size);
  PackedBaseline baseline(plan.group, plan.rank, plan.world_size, wired.baseline.get());
  const std::vector<std::vector<ShardSource>> sources{
      {tensors.shards().begin(), tensors.shards().end()}};
  const std::size_t block = tensors.map().published_bytes();
  const Buffer flat(block * static_cast<std::size_t>(plan.world_size));
  InlineStream stream;

  const auto leave = [&]() -> Status {
    return session.in_bracket() ? session.finish(0, 0, 0) : Status();
  };
  const auto publish = [&]() -> Status {
    auto epoch = session.open(BracketKind::evaluation, 0, 0, sources);
    return epoch ? Status() : Status(epoch.error());
  };
  // After the first two runs, both in warm-up: each must have written every byte itself.
  int checks = 0;
  const auto check = [&]() -> Status {
    if (checks++ >= 2) {
      return {};
    }
    if (!tensors.landings_are_right()) {
      return session_error("a gather brought wrong bytes");
    }
    tensors.clear_landings();
    return {};
  };
  // The same bytes from the same memory, in one piece an owner.
  const auto flat_copy = [&]() -> Status {
    for (int step = 0; step < plan.world_size; ++step) {
      const int owner = (plan.rank + step) % plan.world_size;
      const Piece piece{.remote_offset = PackedBaseline::k_shard_offset,
                        .local = flat.data() + static_cast<std::size_t>(owner) * block,
                        .bytes = block};
      HEADRACE_TRY(wired.baseline->channel(owner).get(stream, {&piece, 1}));
    }
    return {};
  };
  const std::vector<Arm> arms{
      {.name = "publish", .run = publish, .prepare = leave},
      {.name = "gather",
       .run = [&] { return session.gather(0, tensors.landings()); },
       .prepare = nullptr},
      {.name = "packed_baseline",
       .run = [&] { return baseline.all_gather(tensors.shards(), tensors.landings()); },
       .prepare = check},
      {.name = "limit", .run = flat_copy, .prepare = check}};
  return run_wired(plan, wired, tensors, arms, leave);
}

}  // namespace headrace::bench
