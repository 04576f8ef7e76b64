#include "session/session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "collective/gather.h"
#include "collective/publish.h"
#include "collective/scatter_accumulate.h"
#include "kernel/kernels.h"

namespace headrace {
namespace {

std::string summary(const ModelSpec& model) {
  std::int64_t elements = 0;
  for (const GroupSpec& group : model.groups) {
    for (const ParameterSpec& parameter : group.parameters) {
      elements += parameter.rows * parameter.row_elements;
    }
  }
  return fmt::format("{} groups, {} parameters, {} elements", model.groups.size(),
                     model.parameter_count(), elements);
}

std::string fingerprint(const SessionConfig& config) {
  std::string adopted;
  for (const bool group : config.lockstep.adopted) {
    adopted += group ? '1' : '0';
  }
  const ReduceScatterOptions& reduce = config.lockstep.reduce_scatter;
  const AllGatherOptions& gather = config.lockstep.all_gather;
  return fmt::format(
      "{}{}accumulate={} local_ranks={} adopted={} wave_width={} transfers={} passes={} "
      "gradients={} staging_slots={} chunk_bytes={} head_bytes={} min_run={} last_round_groups={} "
      "worker_threads={}",
      config.fingerprint, config.fingerprint.empty() ? "" : " ", to_string(config.accumulate),
      config.local_ranks, adopted, reduce.wave_width, reduce.transfers, reduce.passes,
      reduce.mode == GradientMode::in_place ? "in-place" : "slot-reuse", reduce.staging_slots,
      reduce.chunk_bytes, gather.head_bytes, gather.min_run, gather.last_round_groups,
      config.worker_threads);
}

}  // namespace

Session::Session(const SessionConfig& config, OnDemandPlan plan,
                 std::optional<LockstepPlan> lockstep_plan, std::unique_ptr<Transport> transport,
                 std::shared_ptr<std::atomic<bool>> stopping)
    : config_(config),
      plan_(std::move(plan)),
      lockstep_plan_(std::move(lockstep_plan)),
      transport_(std::move(transport)),
      trace_(config.trace_events),
      owner_pid_(::getpid()),
      stopping_(std::move(stopping)),
      dirty_(plan_.groups(), std::vector<bool>(plan_.slots(), false)),
      touched_(plan_.touched_words(), 0),
      sent_(static_cast<std::size_t>(config.world_size), 0) {
  digest_.model = plan_.model().digest();
  counters_.arena_bytes =
      config.mode == SessionMode::lockstep ? lockstep_plan_->end() : plan_.bytes();
  if (config.worker_threads) {
    worker_ = std::make_unique<ThreadStream>(ThreadStream::OnFailure(), "worker");
    if (config.mode != SessionMode::lockstep) {
      pusher_ = std::make_unique<ThreadStream>(ThreadStream::OnFailure(), "pusher");
    }
  }
}

Session::~Session() { close(); }

Result<std::unique_ptr<Session>> Session::connect(const SessionConfig& config, ModelSpec model,
                                                  const MakeTransport& make_transport) {
  if (config.rank < 0 || config.rank >= config.world_size) {
    return operation_error(
        fmt::format("rank {} does not lie in a world of {} ranks", config.rank, config.world_size));
  }
  if (config.chunk_bytes == 0 || config.chunk_bytes % k_cache_line != 0) {
    return operation_error(fmt::format("chunk_bytes must be a positive multiple of {}, not {}",
                                       k_cache_line, config.chunk_bytes));
  }
  HEADRACE_TRY(model.validate(config.world_size));
  const int local_ranks = config.local_ranks == 0 ? config.world_size : config.local_ranks;
  if (local_ranks < 0 || config.world_size % local_ranks != 0) {
    return operation_error(
        fmt::format("local_ranks={} does not divide a world of {} ranks: every node needs the same "
                    "number",
                    config.local_ranks, config.world_size));
  }
  const bool on_demand = config.mode != SessionMode::lockstep;
  if (on_demand && local_ranks != config.world_size) {
    return operation_error(
        fmt::format("local_ranks={} with {} ranks: on-demand needs all ranks on one node",
                    config.local_ranks, config.world_size));
  }
  HEADRACE_TRY_ASSIGN(const Topology topology,
                      Topology::make(config.world_size / local_ranks, local_ranks));
  OnDemandPlan plan(topology, std::move(model), config.chunk_bytes, config.accumulate);
  std::optional<LockstepPlan> lockstep_plan;
  if (config.mode != SessionMode::on_demand) {
    // Lockstep alone needs nothing of the on-demand arena but the liveness page.
    const std::size_t begin = on_demand ? plan.control_end() : k_page;
    HEADRACE_TRY_ASSIGN(lockstep_plan,
                        LockstepPlan::make(topology, plan.model(), config.lockstep, begin));
    if (on_demand) {
      plan = OnDemandPlan(topology, plan.model(), config.chunk_bytes, config.accumulate,
                          lockstep_plan->end());
    }
  }
  // A worker's wait is not the caller's to interrupt: who holds the caller up asks.
  auto stopping = std::make_shared<std::atomic<bool>>(false);
  const auto interrupted = [stopping, caller = config.interrupted] {
    return ThreadStream::here() != nullptr ? stopping->load() : caller && caller();
  };
  const TransportConfig transport_config{
      .identity = {.rank = config.rank,
                   .world_size = config.world_size,
                   .version = HEADRACE_VERSION,
                   .fingerprint = fingerprint(config),
                   .model = plan.model().digest(),
                   .model_text = summary(plan.model())},
      .local_ranks = local_ranks,
      .memory_bytes = on_demand ? plan.bytes() : lockstep_plan->end(),
      .control_bytes = lockstep_plan ? lockstep_plan->control_end() : plan.control_end(),
      .liveness = config.liveness,
      .wait = config.wait,
      .bootstrap = config.bootstrap,
      .interrupted = interrupted};
  HEADRACE_TRY_ASSIGN(auto transport, make_transport(transport_config));
  if (!transport->capability().on_demand()) {
    return operation_error(
        "this transport cannot read and add to a peer's memory, which on-demand needs");
  }
  std::unique_ptr<Session> session(new Session(config, std::move(plan), std::move(lockstep_plan),
                                               std::move(transport), std::move(stopping)));
  if (session->lockstep_plan_) {
    HEADRACE_TRY_ASSIGN(session->lockstep_,
                        Lockstep::make(&*session->lockstep_plan_, session->transport_.get(),
                                       config.rank, config.wait.no_progress));
  }
  return session;
}

OnDemand Session::on_demand() {
  return {.plan = plan_,
          .transport = *transport_,
          .stream = stream_,
          .control = stream_,
          .rank = config_.rank,
          .drain_limit = config_.wait.no_progress};
}

Status Session::require_usable() const {
  if (owner_pid_ != ::getpid()) {
    return operation_error(
        "a forked child called the engine; only the process that attached may (data-loader workers "
        "must not run the "
        "model)");
  }
  if (phase_ == Phase::closed) {
    return operation_error("the session is closed");
  }
  return {};
}

Status Session::check() const {
  HEADRACE_TRY(require_usable());
  return transport_->liveness().check();
}

Status Session::require(Phase phase, const char* call) const {
  HEADRACE_TRY(check());
  if (phase_ == phase) {
    return {};
  }
  switch (phase) {
    case Phase::idle:
      return operation_error(fmt::format(
          "{} inside a bracket; brackets of one engine do not nest, leave the first one", call));
    case Phase::open:
      return operation_error(fmt::format(
          "{} outside of a bracket; wrap the work in `with engine.minibatch():` or `with "
          "engine.evaluation():` on every rank",
          call));
    default:
      return operation_error(fmt::format("{} before the minibatch was finished", call));
  }
}

Status Session::require_group(std::size_t group, const char* call) const {
  HEADRACE_TRY(require(Phase::open, call));
  if (digest_.in_step) {
    return operation_error(fmt::format("{} on demand in a bracket in step", call));
  }
  return require_known(group, call);
}

Status Session::require_known(std::size_t group, const char* call) const {
  if (group >= plan_.groups()) {
    return operation_error(
        fmt::format("{} of group {}, but there are {} groups", call, group, plan_.groups()));
  }
  return {};
}

Result<std::uint64_t> Session::gradient_bytes(std::size_t group,
                                              std::span<const GradientSource> gradients,
                                              const char* call) const {
  const AddressMap& map = plan_.map(group);
  std::uint64_t bytes = 0;
  std::vector<bool> seen(map.parameters(), false);
  for (const GradientSource& gradient : gradients) {
    if (gradient.parameter >= map.parameters()) {
      return operation_error(fmt::format("a gradient of parameter {} in a group of {}",
                                         gradient.parameter, map.parameters()));
    }
    const ParameterSpec& parameter = plan_.model().groups[group].parameters[gradient.parameter];
    if (seen[gradient.parameter]) {
      return operation_error(
          fmt::format("two gradients of parameter {} in one {}", parameter.name, call));
    }
    seen[gradient.parameter] = true;
    bytes += map.landing_bytes(gradient.parameter) / item_size(parameter.dtype) *
             item_size(gradient.dtype);
  }
  return bytes;
}

Result<std::uint64_t> Session::open(BracketKind kind, double weight, std::uint64_t plan,
                                    const std::vector<std::vector<ShardSource>>& sources,
                                    bool in_step) {
  HEADRACE_TRY(require(Phase::idle, "open"));
  HEADRACE_TRY(drain_work());
  if (in_step ? lockstep_ == nullptr : config_.mode == SessionMode::lockstep) {
    return operation_error(in_step ? "a bracket in step in a session for on-demand alone"
                                   : "an on-demand bracket in a session for lockstep alone");
  }
  if (!in_step && sources.size() != plan_.groups()) {
    return operation_error(fmt::format("sources for {} groups where the model has {}",
                                       sources.size(), plan_.groups()));
  }
  std::uint64_t bytes = 0;
  for (std::size_t group = 0; group < sources.size(); ++group) {
    const GroupSpec& spec = plan_.model().groups[group];
    if (sources[group].size() != spec.parameters.size()) {
      return operation_error(fmt::format("{} sources for group {} of {} parameters",
                                         sources[group].size(), spec.name, spec.parameters.size()));
    }
    for (std::size_t p = 0; p < spec.parameters.size(); ++p) {
      if (sources[group][p].address != nullptr) {
        bytes += plan_.map(group).block_bytes(p);
      } else if (!published_once_ && plan_.map(group).shard_elements(p, config_.rank) > 0) {
        return operation_error(fmt::format("no source for {}, which has never been published",
                                           spec.parameters[p].name));
      }
    }
  }
  BracketDigest digest = digest_;
  digest.epoch += 1;
  digest.kind = kind;
  digest.in_step = in_step;
  digest.weight = weight;
  digest.plan = plan;
  const Status status = traced("publish", -1, bytes, [&]() -> Status {
    if (config_.mode != SessionMode::lockstep) {
      return publish(on_demand(), digest, sources, dirty_);
    }
    HEADRACE_TRY(lockstep_->enter_bracket());
    return agree(digest);
  });
  if (!status) {
    return status.error();
  }
  digest_ = digest;
  phase_ = Phase::open;
  published_once_ = published_once_ || !in_step;
  counters_.publish_bytes += bytes;
  std::fill(touched_.begin(), touched_.end(), 0);
  if (!in_step) {
    dirty_.assign(plan_.groups(), std::vector<bool>(plan_.slots(), false));
  }
  return digest_.epoch;
}

Status Session::start_gather(std::size_t group, std::span<void* const> landings) {
  HEADRACE_TRY(require_group(group, "gather"));
  const AddressMap& map = plan_.map(group);
  if (landings.size() != map.parameters()) {
    return operation_error(
        fmt::format("{} landings for a group of {} parameters", landings.size(), map.parameters()));
  }
  const std::uint64_t bytes =
      map.shard_group_bytes() * static_cast<std::uint64_t>(config_.world_size);
  HEADRACE_TRY(start(group, [this, group, bytes, digest = digest_,
                             landings = std::vector(landings.begin(), landings.end())] {
    return traced("gather", static_cast<int>(group), bytes,
                  [&] { return headrace::gather(on_demand(), digest, group, landings); });
  }));
  counters_.gather_bytes += bytes;
  counters_.gathers += 1;
  return {};
}

Status Session::gather(std::size_t group, std::span<void* const> landings) {
  HEADRACE_TRY(start_gather(group, landings));
  return wait_gather(group);
}

Result<std::uint64_t> Session::push(std::size_t group, std::vector<GradientSource> gradients) {
  HEADRACE_TRY(require_group(group, "push"));
  if (digest_.kind == BracketKind::evaluation) {
    return operation_error(
        "a backward inside engine.evaluation(); gradients belong into engine.minibatch()");
  }
  std::sort(gradients.begin(), gradients.end(),
            [](const auto& a, const auto& b) { return a.parameter < b.parameter; });
  HEADRACE_TRY_ASSIGN(const std::uint64_t bytes, gradient_bytes(group, gradients, "push"));
  for (const GradientSource& gradient : gradients) {
    const std::size_t bit = plan_.first_parameter(group) + gradient.parameter;
    touched_[bit / 64] |= std::uint64_t{1} << (bit % 64);
  }
  counters_.push_bytes += bytes;
  counters_.pushes += 1;
  return hand_over(pusher_.get(),
                   [this, group, bytes, digest = digest_, gradients = std::move(gradients)] {
                     return traced("push", static_cast<int>(group), bytes, [&] {
                       return scatter_accumulate(on_demand(), digest, group, gradients, sent_);
                     });
                   });
}

Status Session::finish(double loss_sum, double weight, std::uint64_t flags) {
  HEADRACE_TRY(require(Phase::open, "finish"));
  HEADRACE_TRY(drain_work());
  const BracketRecord record{
      .digest = digest_, .pushes_sent = 0, .loss_sum = loss_sum, .weight = weight, .flags = flags};
  phase_ = digest_.kind == BracketKind::minibatch ? Phase::finished : Phase::idle;
  return traced("finish", -1, 0, [&]() -> Status {
    if (digest_.in_step) {
      HEADRACE_TRY(lockstep_->leave_bracket());
    }
    if (config_.mode == SessionMode::lockstep) {
      record_ = record;
      return {};
    }
    return headrace::finish(on_demand(), record, touched_, sent_);
  });
}

Result<Settlement> Session::settle() {
  HEADRACE_TRY(require(Phase::finished, "settle"));
  auto settled = traced("settle", -1, 0, [&] {
    return config_.mode == SessionMode::lockstep ? settle_records()
                                                 : headrace::settle(on_demand(), digest_);
  });
  if (settled) {
    phase_ = Phase::idle;
    mark_dirty(settled->touched_by);
  }
  return settled;
}

void Session::mark_dirty(const std::vector<std::vector<std::uint64_t>>& touched_by) {
  for (std::size_t group = 0; group < plan_.groups(); ++group) {
    for (int source = 0; source < config_.world_size; ++source) {
      for (std::size_t p = 0; p < plan_.map(group).parameters(); ++p) {
        if (plan_.touches(touched_by[static_cast<std::size_t>(source)], group, p)) {
          dirty_[group][plan_.slot(source)] = true;
          dirty_[group][0] = true;  // holds the sum
        }
      }
    }
  }
}

Status Session::collect(std::size_t group, std::size_t parameter, void* destination, DType dtype,
                        float scale, bool add) {
  HEADRACE_TRY(require(Phase::idle, "collect"));
  if (group >= plan_.groups() || parameter >= plan_.map(group).parameters()) {
    return operation_error(fmt::format("there is no parameter {} of group {}", parameter, group));
  }
  const AddressMap& map = plan_.map(group);
  const std::byte* sum =
      transport_->at(plan_.accumulator_offset(group, 0) + map.accumulator_offset(parameter));
  return transport_->kernels().write_scaled(stream_, destination, dtype,
                                            reinterpret_cast<const float*>(sum), scale,
                                            map.shard_elements(parameter, config_.rank), add);
}

void Session::fail(const std::string& reason) {
  if (owner_pid_ == ::getpid() && phase_ != Phase::closed) {
    transport_->liveness().fail(session_error(reason));
    stop_work();
  }
}

void Session::close() {
  if (owner_pid_ != ::getpid()) {
    (void)worker_.release();
    (void)pusher_.release();
    (void)lockstep_.release();
    (void)transport_
        .release();  // NOLINT: a forked child shares the parent's memory and threads in name only
    return;
  }
  if (phase_ == Phase::open || phase_ == Phase::finished) {
    fail("the session was closed inside a bracket");
  }
  if (phase_ != Phase::closed) {
    stop_work();
    transport_->liveness().leave();
    phase_ = Phase::closed;
    lockstep_.reset();
    transport_.reset();
  }
}

Counters Session::counters() const {
  Counters counters = counters_;
  counters.worker_ns = worker_ns_.load(std::memory_order_relaxed);
  counters.hidden_ns = std::max<std::int64_t>(0, counters.worker_ns - held_ns_);
  counters.trace_dropped = trace_.dropped();
  return counters;
}

std::vector<TraceEvent> Session::drain_trace() {
  return owner_pid_ == ::getpid() ? trace_.drain() : std::vector<TraceEvent>();
}

}  // namespace headrace
