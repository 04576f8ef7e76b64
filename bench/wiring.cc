#include "bench/wiring.h"

#include <utility>

#include "transport/meet.h"
#include "transport/shm/shm_transport.h"

namespace headrace::bench {
namespace {

Result<std::unique_ptr<Session>> connect(const RankPlan& plan, SessionConfig config) {
  config.rank = plan.rank;
  config.world_size = plan.world_size;
  return Session::connect(config, ModelSpec{.groups = {plan.group}},
                          [&](const TransportConfig& transport) {
                            return make_shm_transport(transport, plan.next_exchange());
                          });
}

// Lines all ranks up over the transport.
std::function<Status()> meeting(const RankPlan& plan, const Wired& wired) {
  auto round = std::make_shared<std::uint64_t>(0);
  return [round, transport = wired.baseline.get(), offset = wired.baseline_bytes, rank = plan.rank,
          world_size = plan.world_size]() -> Status {
    InlineStream stream;
    return meet(*transport, stream, rank, world_size, offset, ++*round, "start of a round");
  };
}

}  // namespace

Result<std::unique_ptr<Session>> connect(const RankPlan& plan, Accumulation accumulate) {
  SessionConfig config;
  config.chunk_bytes = plan.chunk_bytes;
  config.accumulate = accumulate;
  return connect(plan, config);
}

Result<std::unique_ptr<Session>> connect_lockstep(const RankPlan& plan) {
  SessionConfig config;
  config.mode = SessionMode::lockstep;
  config.lockstep.adopted = {true};
  config.lockstep.reduce_scatter = plan.reduce_scatter;
  return connect(plan, config);
}

Result<Wired> wire(const RankPlan& plan, std::unique_ptr<Session> session,
                   std::size_t baseline_bytes) {
  TransportConfig baseline;
  baseline.identity.rank = plan.rank;
  baseline.identity.world_size = plan.world_size;
  baseline.memory_bytes = baseline_bytes + k_page;
  HEADRACE_TRY_ASSIGN(auto transport, make_shm_transport(baseline, plan.next_exchange()));
  return Wired{.session = std::move(session),
               .baseline = std::move(transport),
               .baseline_bytes = baseline_bytes};
}

Result<std::vector<Spans>> run_wired(const RankPlan& plan, const Wired& wired, RankTensors& tensors,
                                     std::vector<Arm> arms, const std::function<Status()>& leave) {
  for (const auto& peer : plan.peers) {
    arms.push_back(peer(tensors));
  }
  HEADRACE_TRY_ASSIGN(auto spans, run_rounds(plan.rounds, arms, meeting(plan, wired)));
  HEADRACE_TRY(leave());
  wired.baseline->liveness().leave();
  wired.session->close();
  return spans;
}

}  // namespace headrace::bench
