#include "replay/calls.h"

#include "base/clock.h"
#include "collective/packed_baseline.h"
#include "replay/decoder.h"
#include "session/config.h"

namespace headrace::replay {
namespace {

Deadline longest_wait() { return Deadline(WaitConfig{}.no_progress); }

}  // namespace

Calls::Calls(bool on_worker) {
  if (on_worker) {
    worker_ = std::make_unique<ThreadStream>();
  }
}

void Calls::set_groups(std::size_t groups) {
  asked_.resize(groups);
  gathers_.resize(groups);
  reductions_.resize(groups);
  reduced_.resize(groups);
}

void Calls::end_worker() { worker_.reset(); }

Status Calls::timed(CallKind kind, const std::function<Status()>& body) {
  CallTime time{.kind = kind, .begin_ns = now_ns(), .end_ns = 0, .waited_ns = waited_ns()};
  HEADRACE_TRY(body());
  time.end_ns = now_ns();
  time.waited_ns = waited_ns() - time.waited_ns;
  times_.push_back(time);
  return {};
}

Status Calls::enter() {
  reduced_.assign(reduced_.size(), false);
  return timed(CallKind::enter, [this] { return do_enter(); });
}

Status Calls::start_gather(std::size_t group, std::span<void* const> landings) {
  if (worker_ == nullptr) {
    asked_[group] = landings;
    return {};
  }
  HEADRACE_TRY(worker_->enqueue([this, group, landings] {
    return timed(CallKind::gather, [&] { return do_gather(group, landings); });
  }));
  HEADRACE_TRY_ASSIGN(gathers_[group], worker_->record());
  return {};
}

Status Calls::wait_gather(std::size_t group) {
  if (worker_ == nullptr) {
    return timed(CallKind::gather, [&] { return do_gather(group, asked_[group]); });
  }
  return gathers_[group].wait(longest_wait());
}

Status Calls::start_reduce(std::size_t group, std::span<const GradientSource> gradients) {
  const bool first = !reduced_[group];
  reduced_[group] = true;
  const auto reduce = [this, group, gradients, first] {
    return timed(CallKind::reduce, [&] { return do_reduce(group, gradients, first); });
  };
  if (worker_ == nullptr) {
    return reduce();
  }
  HEADRACE_TRY(worker_->enqueue(reduce));
  HEADRACE_TRY_ASSIGN(reductions_[group], worker_->record());
  return {};
}

Status Calls::wait_reduce(std::size_t group) { return reductions_[group].wait(longest_wait()); }

Status Calls::leave() {
  for (std::size_t group = 0; group < reductions_.size(); ++group) {
    HEADRACE_TRY(wait_reduce(group));
  }
  return timed(CallKind::leave, [this] { return do_leave(); });
}

Result<std::unique_ptr<Calls>> make_calls(Way way, const CallsConfig& config, Tensors& tensors) {
  switch (way) {
    case Way::packed:
      return make_packed_calls(config, tensors);
    case Way::lockstep:
      return make_lockstep_calls(config, tensors);
    case Way::on_demand:
      break;
  }
  return make_on_demand_calls(config, tensors);
}

std::size_t exchanges_of(Way way) { return way == Way::packed ? 2 : 1; }

Result<std::size_t> shared_bytes(Way way, const ModelSpec& model, int world_size) {
  HEADRACE_TRY_ASSIGN(const Topology topology, Topology::single_node(world_size));
  const SessionConfig config;
  switch (way) {
    case Way::packed:
      return PackedBaseline::memory_bytes(model.groups[k_root], world_size) +
             PackedBaseline::memory_bytes(model.groups[k_root + 1], world_size);
    case Way::lockstep: {
      HEADRACE_TRY_ASSIGN(const LockstepPlan plan,
                          LockstepPlan::make(topology, model, config.lockstep, k_page));
      return plan.end();
    }
    case Way::on_demand:
      break;
  }
  return OnDemandPlan(topology, model, config.chunk_bytes, config.accumulate).bytes();
}

}  // namespace headrace::replay
