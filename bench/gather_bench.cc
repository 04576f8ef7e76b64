#include "bench/gather_bench.h"

#include <memory>

#include "collective/packed_baseline.h"
#include "kernel/copy.h"
#include "transport/shm/shm_transport.h"

namespace headrace::bench {
namespace {

// Behind the baseline's own regions: one signal a rank for lining up.
std::size_t meeting_offset(const RankPlan& plan) {
  return PackedBaseline::memory_bytes(plan.group, plan.world_size);
}

// Lines all ranks up over the transport.
std::function<Status()> meeting(const RankPlan& plan, Transport* transport) {
  auto round = std::make_shared<std::uint64_t>(0);
  const std::size_t offset = meeting_offset(plan);
  return [=, rank = plan.rank, world_size = plan.world_size]() -> Status {
    InlineStream stream;
    ++*round;
    const auto signal = [offset](int peer) {
      return offset + static_cast<std::size_t>(peer) * k_signal_bytes;
    };
    for (int peer = 0; peer < world_size; ++peer) {
      HEADRACE_TRY(transport->channel(peer).signal(stream, signal(rank), *round));
    }
    for (int peer = 0; peer < world_size; ++peer) {
      HEADRACE_TRY(transport->channel(peer).wait(stream, signal(peer), *round, "start of a round"));
    }
    return {};
  };
}

}  // namespace

Result<std::unique_ptr<Session>> connect(const RankPlan& plan, Accumulation accumulate) {
  SessionConfig config;
  config.rank = plan.rank;
  config.world_size = plan.world_size;
  config.chunk_bytes = plan.chunk_bytes;
  config.accumulate = accumulate;
  return Session::connect(config, ModelSpec{.groups = {plan.group}},
                          [&](const TransportConfig& transport) {
                            return make_shm_transport(transport, plan.next_exchange());
                          });
}

Result<Wired> wire(const RankPlan& plan) {
  Wired wired;
  HEADRACE_TRY_ASSIGN(wired.session, connect(plan, Accumulation::arrival));
  TransportConfig baseline;
  baseline.identity.rank = plan.rank;
  baseline.identity.world_size = plan.world_size;
  baseline.memory_bytes = meeting_offset(plan) + k_page;
  HEADRACE_TRY_ASSIGN(wired.baseline, make_shm_transport(baseline, plan.next_exchange()));
  return wired;
}

Result<std::vector<Spans>> run_wired(const RankPlan& plan, const Wired& wired, RankTensors& tensors,
                                     std::vector<Arm> arms, const std::function<Status()>& leave) {
  for (const auto& peer : plan.peers) {
    arms.push_back(peer(tensors));
  }
  HEADRACE_TRY_ASSIGN(auto spans,
                      run_rounds(plan.rounds, arms, meeting(plan, wired.baseline.get())));
  HEADRACE_TRY(leave());
  wired.baseline->liveness().leave();
  wired.session->close();
  return spans;
}

Result<std::vector<Spans>> gather_bench(const RankPlan& plan) {
  HEADRACE_TRY_ASSIGN(Wired wired, wire(plan));
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
      const Piece piece{.remote_offset = 2 * k_page,
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
