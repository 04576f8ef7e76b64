// Calls over a session, on demand and in lockstep.

#include <utility>

#include "replay/calls.h"
#include "session/session.h"
#include "transport/shm/shm_transport.h"

namespace headrace::replay {
namespace {

class SessionCalls : public Calls {
 public:
  SessionCalls(bool on_worker, Tensors& tensors, std::unique_ptr<Session> session)
      : Calls(on_worker), tensors_(tensors), session_(std::move(session)) {
    set_groups(tensors.groups());
  }
  ~SessionCalls() override { end_worker(); }

  void close() override { session_->close(); }

 protected:
  std::int64_t waited_ns() const override { return session_->counters().wait_ns; }
  Status settle() {
    HEADRACE_TRY(session_->finish(0, 0, 0));
    const auto settled = session_->settle();
    return settled ? Status() : Status(settled.error());
  }

  Tensors& tensors_;
  std::unique_ptr<Session> session_;
};

class OnDemandCalls final : public SessionCalls {
 public:
  using SessionCalls::SessionCalls;

 protected:
  Status do_enter() override {
    const auto epoch = session_->open(BracketKind::minibatch, 0, 0, tensors_.shards());
    return epoch ? Status() : Status(epoch.error());
  }
  Status do_gather(std::size_t group, std::span<void* const> landings) override {
    return session_->gather(group, landings);
  }
  Status do_reduce(std::size_t group, std::span<const GradientSource> gradients,
                   bool /*first*/) override {
    return session_->push(group, {gradients.begin(), gradients.end()});
  }
  Status do_leave() override {
    HEADRACE_TRY(settle());
    for (std::size_t group = 0; group < tensors_.groups(); ++group) {
      const AddressMap& map = tensors_.map(group);
      for (std::size_t p = 0; p < map.parameters(); ++p) {
        HEADRACE_TRY(session_->collect(
            group, p, tensors_.sums(group).data() + map.accumulator_offset(p) / sizeof(float),
            DType::float32, 1.0F, false));
      }
    }
    return {};
  }
};

class LockstepCalls final : public SessionCalls {
 public:
  using SessionCalls::SessionCalls;

 protected:
  Status do_enter() override {
    const auto epoch = session_->open(BracketKind::minibatch, 0, 0, {}, true);
    return epoch ? Status() : Status(epoch.error());
  }
  Status do_gather(std::size_t group, std::span<void* const> landings) override {
    return session_->all_gather(group, tensors_.shards()[group], landings);
  }
  Status do_reduce(std::size_t group, std::span<const GradientSource> gradients,
                   bool first) override {
    return session_->reduce_scatter(group, gradients, tensors_.sums(group).data(), 1.0F, !first,
                                    !first);
  }
  Status do_leave() override { return settle(); }
};

Result<std::unique_ptr<Session>> connect(const CallsConfig& config, Mode mode) {
  SessionConfig session;
  session.rank = config.rank;
  session.world_size = config.world_size;
  session.mode = mode;
  return Session::connect(session, config.model, [&](const TransportConfig& transport) {
    return make_shm_transport(transport, config.next_exchange());
  });
}

}  // namespace

Result<std::unique_ptr<Calls>> make_on_demand_calls(const CallsConfig& config, Tensors& tensors) {
  HEADRACE_TRY_ASSIGN(auto session, connect(config, Mode::on_demand));
  return std::unique_ptr<Calls>(
      std::make_unique<OnDemandCalls>(config.on_worker, tensors, std::move(session)));
}

Result<std::unique_ptr<Calls>> make_lockstep_calls(const CallsConfig& config, Tensors& tensors) {
  HEADRACE_TRY_ASSIGN(auto session, connect(config, Mode::lockstep));
  return std::unique_ptr<Calls>(
      std::make_unique<LockstepCalls>(config.on_worker, tensors, std::move(session)));
}

}  // namespace headrace::replay
