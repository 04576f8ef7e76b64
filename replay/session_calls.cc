// Calls over a session, on demand and in lockstep.

#include <optional>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "replay/calls.h"
#include "session/session.h"
#include "transport/shm/shm_transport.h"

namespace headrace::replay {
namespace {

// None: a part of another call.
std::optional<CallKind> kind_of(std::string_view event) {
  if (event == "publish") {
    return CallKind::enter;
  }
  if (event == "gather" || event == "all_gather") {
    return CallKind::gather;
  }
  if (event == "push" || event == "reduce_scatter") {
    return CallKind::reduce;
  }
  return std::nullopt;
}

class SessionCalls : public Calls {
 public:
  SessionCalls(Tensors& tensors, std::unique_ptr<Session> session)
      : tensors_(tensors), session_(std::move(session)), tickets_(tensors.groups()) {}

  Status wait_gather(std::size_t group) override { return session_->wait_gather(group); }
  Status wait_reduce(std::size_t group) override { return session_->wait_pushed(tickets_[group]); }

  Status leave() override {
    for (const std::uint64_t ticket : tickets_) {
      HEADRACE_TRY(session_->wait_pushed(ticket));
    }
    left_ = {.kind = CallKind::leave, .begin_ns = now_ns()};
    HEADRACE_TRY(session_->finish(0, 0, 0));
    if (const auto settled = session_->settle(); !settled) {
      return settled.error();
    }
    HEADRACE_TRY(collect());
    left_.end_ns = now_ns();
    return {};
  }

  std::vector<CallTime> drain() override {
    std::vector<CallTime> times;
    for (const TraceEvent& event : session_->drain_trace()) {
      const std::string_view name = event.name;
      if (const auto kind = kind_of(name)) {
        times.push_back({.kind = *kind,
                         .begin_ns = event.begin_ns,
                         .end_ns = event.end_ns,
                         .waited_ns = event.waited_ns});
      } else if (name == "finish" || name == "settle") {
        left_.waited_ns += event.waited_ns;
      }
    }
    times.push_back(left_);
    return times;
  }
  void close() override { session_->close(); }

 protected:
  virtual Status collect() = 0;
  Status keep(std::size_t group, Result<std::uint64_t> ticket) {
    HEADRACE_TRY_ASSIGN(tickets_[group], std::move(ticket));
    return {};
  }

  Tensors& tensors_;
  std::unique_ptr<Session> session_;

 private:
  std::vector<std::uint64_t> tickets_;  ///< of each group's last reduction
  CallTime left_;
};

class OnDemandCalls final : public SessionCalls {
 public:
  using SessionCalls::SessionCalls;

  Status enter() override {
    const auto epoch = session_->open(BracketKind::minibatch, 0, 0, tensors_.shards());
    return epoch ? Status() : Status(epoch.error());
  }
  Status start_gather(std::size_t group, std::span<void* const> landings) override {
    return session_->start_gather(group, landings);
  }
  Status start_reduce(std::size_t group, std::span<const GradientSource> gradients,
                      bool /*first*/) override {
    return keep(group, session_->push(group, {gradients.begin(), gradients.end()}));
  }

 protected:
  Status collect() override {
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

  Status enter() override {
    const auto epoch = session_->open(BracketKind::minibatch, 0, 0, {}, true);
    return epoch ? Status() : Status(epoch.error());
  }
  Status start_gather(std::size_t group, std::span<void* const> landings) override {
    return session_->start_all_gather(group, tensors_.shards()[group], landings);
  }
  Status start_reduce(std::size_t group, std::span<const GradientSource> gradients,
                      bool first) override {
    return keep(group, session_->start_reduce_scatter(group, gradients, tensors_.sums(group).data(),
                                                      1.0F, !first, !first));
  }

 protected:
  Status collect() override { return {}; }
};

Result<std::unique_ptr<Session>> connect(const CallsConfig& config, SessionMode mode) {
  SessionConfig session;
  session.rank = config.rank;
  session.world_size = config.world_size;
  session.mode = mode;
  session.worker_threads = config.on_worker;
  return Session::connect(session, config.model, [&](const TransportConfig& transport) {
    return make_shm_transport(transport, config.next_exchange());
  });
}

}  // namespace

Result<std::unique_ptr<Calls>> make_on_demand_calls(const CallsConfig& config, Tensors& tensors) {
  HEADRACE_TRY_ASSIGN(auto session, connect(config, SessionMode::on_demand));
  return std::unique_ptr<Calls>(std::make_unique<OnDemandCalls>(tensors, std::move(session)));
}

Result<std::unique_ptr<Calls>> make_lockstep_calls(const CallsConfig& config, Tensors& tensors) {
  HEADRACE_TRY_ASSIGN(auto session, connect(config, SessionMode::lockstep));
  return std::unique_ptr<Calls>(std::make_unique<LockstepCalls>(tensors, std::move(session)));
}

}  // namespace headrace::replay
