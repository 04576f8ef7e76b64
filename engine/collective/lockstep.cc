#include "collective/lockstep.h"

#include <fmt/format.h>

#include <cstring>

#include "base/digest.h"
#include "plan/all_gather_plan.h"
#include "plan/program_check.h"
#include "plan/reduce_scatter_plan.h"
#include "plan/schedule_check.h"

namespace headrace {
namespace {

#ifdef NDEBUG
constexpr bool k_check_programs = false;
#else
constexpr bool k_check_programs = true;
#endif

/// This rank's program, made by `make(rank)`. In debug builds checked by itself and, on rank 0 of a
/// world that is small enough for it, together with the programs of all other ranks.
template <class Make>
Result<Program> compile(const Topology& topology, const GroupSpec& group, CollectiveKind kind,
                        const ScheduleShape& shape, int rank, const Make& make) {
  constexpr int k_most_ranks = 8;
  HEADRACE_TRY_ASSIGN(RankProgram mine, make(rank));
  if (k_check_programs) {
    HEADRACE_TRY(program_check(topology, group, kind, shape, rank, mine));
    if (rank == 0 && topology.world_size() <= k_most_ranks) {
      Collective collective{.kind = kind, .group = group, .shape = shape, .programs = {mine}};
      for (int other = 1; other < topology.world_size(); ++other) {
        HEADRACE_TRY_ASSIGN(RankProgram program, make(other));
        collective.programs.push_back(std::move(program));
      }
      HEADRACE_TRY(schedule_check(topology, collective));
    }
  }
  return Program(kind, std::move(mine));
}

}  // namespace

Lockstep::Lockstep(const LockstepPlan* plan, Transport* transport, int rank, Milliseconds limit,
                   std::vector<std::unique_ptr<Stream>> workers)
    : plan_(plan),
      transport_(transport),
      rank_(rank),
      limit_(limit),
      workers_(std::move(workers)),
      executor_(transport, plan->topology(), rank, plan->signals_offset(), plan->signals(),
                lane_streams(), limit) {}

Lockstep::~Lockstep() { drain(); }

LaneStreams Lockstep::lane_streams() {
  LaneStreams streams;
  std::size_t next = 0;
  for (auto& kind : streams) {
    for (Stream*& lane : kind) {
      lane = workers_.empty() ? &stream_ : workers_[next++ % workers_.size()].get();
    }
  }
  return streams;
}

Result<std::unique_ptr<Lockstep>> Lockstep::make(const LockstepPlan* plan, Transport* transport,
                                                 int rank, Milliseconds limit, Lanes lanes) {
  if (lanes.streams > k_most_lane_streams) {
    return operation_error(fmt::format("{} streams for {} lanes: a lane has one stream",
                                       lanes.streams, k_most_lane_streams));
  }
  std::vector<std::unique_ptr<Stream>> workers;
  while (workers.size() < lanes.streams) {
    HEADRACE_TRY_ASSIGN(auto stream, transport->make_stream());
    workers.push_back(std::move(stream));
  }
  std::unique_ptr<Lockstep> result(new Lockstep(plan, transport, rank, limit, std::move(workers)));
  for (std::size_t group = 0; group < plan->groups(); ++group) {
    const GroupSpec& spec = plan->model().groups[group];
    const AllGatherOptions options = plan->all_gather_options(group);
    const ScheduleShape shape = all_gather_shape(plan->topology(), spec, options);
    HEADRACE_TRY_ASSIGN(Program program,
                        compile(plan->topology(), spec, CollectiveKind::all_gather, shape, rank,
                                [&](int other) -> Result<RankProgram> {
                                  return all_gather_program(plan->topology(), spec, options, other);
                                }));
    result->gathers_.push_back(std::move(program));
  }
  return result;
}

Status Lockstep::all_gather(std::size_t group, std::span<const ShardSource> shards,
                            std::span<void* const> landings) {
  return finish(start_all_gather(group, shards, landings, Event()));
}

Result<Milestones> Lockstep::start_all_gather(std::size_t group,
                                              std::span<const ShardSource> shards,
                                              std::span<void* const> landings, const Event& after) {
  call_ = fmt::format("all-gather of group '{}'", plan_->model().groups[group].name);
  HEADRACE_TRY(begin({.kind = CallKind::all_gather, .group = static_cast<std::uint32_t>(group)}));
  return executor_.run(gathers_[group], plan_->regions(group),
                       {.shards = shards, .landings = landings}, after, call_);
}

Result<std::vector<std::string>> Lockstep::exchange(std::string_view mine) {
  constexpr std::size_t k_bytes = LockstepPlan::k_record_bytes;
  const std::size_t group = plan_->record_group();
  std::string record(mine);
  const Piece piece{.remote_offset = plan_->resident_offset(group),
                    .local = record.data(),
                    .bytes = record.size()};
  HEADRACE_TRY(transport_->channel(rank_).put(stream_, {&piece, 1}));
  const auto ranks = static_cast<std::size_t>(plan_->topology().world_size());
  std::string all(ranks * k_bytes, '\0');
  const ShardSource shard;
  void* landing = all.data();
  HEADRACE_TRY(all_gather(group, {&shard, 1}, {&landing, 1}));
  std::vector<std::string> records;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    records.push_back(all.substr(rank * k_bytes, mine.size()));
  }
  return records;
}

Status Lockstep::reduce_scatter(std::size_t group, std::span<const GradientSource> gradients,
                                float* output, float alpha, bool accumulate, bool earlier) {
  return finish(
      start_reduce_scatter(group, gradients, output, alpha, accumulate, earlier, Event()));
}

Result<Milestones> Lockstep::start_reduce_scatter(std::size_t group,
                                                  std::span<const GradientSource> gradients,
                                                  float* output, float alpha, bool accumulate,
                                                  bool earlier, const Event& after) {
  const GroupSpec& spec = plan_->model().groups[group];
  std::vector<DType> dtypes;
  std::vector<GradientSource> by_parameter;
  for (std::size_t p = 0; p < spec.parameters.size(); ++p) {
    dtypes.push_back(spec.parameters[p].dtype);
    by_parameter.push_back({.parameter = p, .address = nullptr});
  }
  for (const GradientSource& gradient : gradients) {
    dtypes[gradient.parameter] = gradient.dtype;
    by_parameter[gradient.parameter] = gradient;
  }
  Digest present;
  for (const GradientSource& gradient : by_parameter) {
    present.add_word(gradient.address != nullptr ? 1 : 0);
  }
  for (const DType dtype : dtypes) {
    present.add_word(static_cast<std::uint64_t>(dtype));
  }
  call_ = fmt::format("reduce-scatter of group '{}'", spec.name);
  HEADRACE_TRY_ASSIGN(const Program* program, reduce_program(group, dtypes));
  HEADRACE_TRY(begin({.kind = CallKind::reduce_scatter,
                      .group = static_cast<std::uint32_t>(group),
                      .gradients = present.value(),
                      .alpha = alpha,
                      .accumulate = accumulate ? 1U : 0U,
                      .earlier = earlier ? 1U : 0U}));
  return executor_.run(
      *program, plan_->regions(group),
      {.gradients = by_parameter, .output = output, .alpha = alpha, .accumulate = accumulate},
      after, call_);
}

Status Lockstep::enter_bracket() {
  call_ = "bracket";
  return begin({.kind = CallKind::enter_bracket});
}

Status Lockstep::leave_bracket() {
  call_ = "end of the bracket";
  return begin({.kind = CallKind::leave_bracket});
}

Result<const Program*> Lockstep::reduce_program(std::size_t group,
                                                const std::vector<DType>& dtypes) {
  const auto found = reductions_.find({group, dtypes});
  if (found != reductions_.end()) {
    return &found->second;
  }
  const GroupSpec& spec = plan_->model().groups[group];
  const ReduceScatterOptions options = plan_->reduce_scatter_options(dtypes);
  HEADRACE_TRY_ASSIGN(const ScheduleShape shape,
                      reduce_scatter_shape(plan_->topology(), spec, options));
  HEADRACE_TRY_ASSIGN(Program program,
                      compile(plan_->topology(), spec, CollectiveKind::reduce_scatter, shape, rank_,
                              [&](int other) {
                                return reduce_scatter_program(plan_->topology(), spec, options,
                                                              other);
                              }));
  const auto [made, inserted] = reductions_.emplace(std::pair(group, dtypes), std::move(program));
  return &made->second;
}

Status Lockstep::begin(CallDigest digest) {
  digest.number = ++calls_;
  const std::size_t slot = plan_->digest_offset(rank_, digest.number);
  const Piece piece{.remote_offset = slot, .local = &digest, .bytes = sizeof digest};
  const std::vector<int> neighbours = plan_->neighbours(rank_);
  for (const int peer : neighbours) {
    Channel& channel = transport_->channel(peer);
    HEADRACE_TRY(channel.put(stream_, {&piece, 1}));
    HEADRACE_TRY(channel.signal(stream_, plan_->call_signal(rank_), digest.number));
  }
  for (const int peer : neighbours) {
    HEADRACE_TRY(
        transport_->channel(peer).wait(stream_, plan_->call_signal(peer), digest.number, call_));
    CallDigest theirs;
    std::memcpy(&theirs, transport_->at(plan_->digest_offset(peer, digest.number)), sizeof theirs);
    HEADRACE_TRY(compare(peer, theirs, digest));
  }
  return {};
}

std::string Lockstep::doing(const CallDigest& call) const {
  switch (call.kind) {
    case CallKind::all_gather:
      return fmt::format("in an all-gather of group '{}'", plan_->model().groups[call.group].name);
    case CallKind::reduce_scatter:
      return fmt::format("in a reduce-scatter of group '{}'",
                         plan_->model().groups[call.group].name);
    case CallKind::enter_bracket:
      return "entering a bracket";
    case CallKind::leave_bracket:
      return "leaving its bracket";
  }
  return "in no call";
}

// The text names this rank by its number, since peers are told it too.
Status Lockstep::compare(int peer, const CallDigest& theirs, const CallDigest& ours) const {
  const auto differs = [peer](std::string what) {
    return Error{.scope = Scope::session, .message = std::move(what), .rank = peer};
  };
  const std::string& group = plan_->model().groups[ours.group].name;
  if (theirs.number != ours.number || theirs.group >= plan_->groups()) {
    return differs(fmt::format(
        "rank {} signalled its call {} to rank {}, but what it wrote describes call {}: the "
        "transport lost or reordered data",
        peer, ours.number, rank_, theirs.number));
  }
  if (theirs.kind != ours.kind || theirs.group != ours.group) {
    return differs(fmt::format(
        "rank {} is {} where rank {} is {}; in lockstep all ranks must run the same layers in the "
        "same order, the same number of times",
        peer, doing(theirs), rank_, doing(ours)));
  }
  if (theirs.earlier != ours.earlier) {
    const int adds = theirs.earlier != 0 ? peer : rank_;
    return differs(fmt::format(
        "rank {} adds gradients of group '{}' to those of an earlier microbatch where rank {} has "
        "none: in lockstep every rank must run the same number of microbatches between optimizer "
        "steps",
        adds, group, adds == peer ? rank_ : peer));
  }
  if (theirs.gradients != ours.gradients) {
    return differs(
        fmt::format("rank {} has gradients of other parameters of group '{}', or in other dtypes, "
                    "than rank {}; in lockstep every rank must use the same parameters",
                    peer, group, rank_));
  }
  if (theirs.alpha != ours.alpha) {
    return differs(
        fmt::format("rank {} scales the gradients of group '{}' by {} where rank {} scales them by "
                    "{}",
                    peer, group, theirs.alpha, rank_, ours.alpha));
  }
  if (theirs.accumulate != ours.accumulate) {
    return differs(fmt::format("rank {} {} the gradients of group '{}' where rank {} {} them", peer,
                               theirs.accumulate != 0 ? "adds up" : "replaces", group, rank_,
                               ours.accumulate != 0 ? "adds up" : "replaces"));
  }
  return {};
}

Status Lockstep::finish(Result<Milestones> milestones) {
  Status status = milestones ? Status() : Status(milestones.error());
  for (std::size_t i = 0; status && i < k_milestones; ++i) {
    status = (*milestones)[i].wait(Deadline(limit_));
  }
  if (!status) {
    drain();
  }
  return status;
}

void Lockstep::drain() {
  for (const auto& worker : workers_) {
    if (auto event = worker->record()) {
      static_cast<void>(event->wait(Deadline(limit_)));
    }
  }
}

}  // namespace headrace
