#include "collective/executor.h"

#include <utility>

#include "kernel/kernels.h"

namespace headrace {

Program::Program(CollectiveKind kind_of, RankProgram program)
    : kind(kind_of), rank(std::move(program)), awaited(rank.ops.size(), false) {
  for (const Op& op : rank.ops) {
    for (const std::uint32_t earlier : op.after) {
      if (rank.ops[earlier].lane != op.lane) {
        awaited[earlier] = true;
      }
    }
  }
}

/// One call, with everything that turns a place into an address.
struct Executor::Call {
  const ArenaRegions& regions;
  const Bindings& bindings;
  std::string_view what;
  std::uint64_t number;  ///< of its kind
  Transport* transport;

  /// Offset in the memory of any rank of the node; `place` lies in an arena region.
  std::size_t arena_offset(const Place& place) const {
    const ArenaRegion& region = regions[static_cast<std::size_t>(place.region)];
    return region.offset + number % region.size.banks * region.size.bytes + place.offset;
  }

  static bool in_arena(const Place& place) { return place.region >= Region::resident; }

  /// Of a place in this rank's own memory; null where the caller has bound nothing.
  std::byte* own_address(const Place& place) const {
    const auto at = [&place](const void* base) {
      auto* bytes = static_cast<std::byte*>(const_cast<void*>(base));
      return bytes == nullptr ? nullptr : bytes + place.offset;
    };
    switch (place.region) {
      case Region::shard:
        return at(bindings.shards[place.index].address);
      case Region::landing:
        return at(bindings.landings[place.index]);
      case Region::gradient:
        return at(bindings.gradients[place.index].address);
      case Region::output:
        return at(bindings.output);
      default:
        return transport->at(arena_offset(place));
    }
  }

  /// The rows of an operation, between another rank's arena and this rank's own memory.
  std::vector<Piece> pieces(const Op& op, const Strided& remote, const Strided& own) const {
    const std::size_t remote_offset = arena_offset(remote.place);
    std::byte* local = own_address(own.place);
    std::vector<Piece> result;
    result.reserve(op.rows);
    for (std::size_t row = 0; row < op.rows; ++row) {
      result.push_back({.remote_offset = remote_offset + row * remote.pitch,
                        .local = local + row * own.pitch,
                        .bytes = op.elements * item_size(op.sources[0].dtype)});
    }
    return result;
  }
};

Channel& Executor::local_channel(const Place& place) const {
  return transport_->channel(topology_.rank_of(topology_.node_of(rank_), place.local));
}

Executor::Executor(Transport* transport, const Topology& topology, int rank,
                   std::size_t signals_offset, std::size_t signals, const LaneStreams& streams,
                   Milliseconds limit)
    : transport_(transport),
      topology_(topology),
      rank_(rank),
      signals_offset_(signals_offset),
      signals_(signals),
      streams_(streams),
      limit_(limit),
      raised_(static_cast<std::size_t>(topology.world_size()) * signals),
      awaited_(signals) {}

Executor::Count& Executor::raised(int peer, SignalId signal) {
  return raised_[static_cast<std::size_t>(peer) * signals_ + signal];
}

Result<Milestones> Executor::run(const Program& program, const ArenaRegions& regions,
                                 const Bindings& bindings, const Event& after,
                                 std::string_view what) {
  const auto kind = static_cast<std::size_t>(program.kind);
  const Call call{.regions = regions,
                  .bindings = bindings,
                  .what = what,
                  .number = calls_[kind],
                  .transport = transport_};
  HEADRACE_TRY(hold_lanes(kind, after));
  Milestones milestones;
  const std::vector<Op>& ops = program.rank.ops;
  events_.assign(ops.size(), Event());
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Op& op = ops[i];
    Stream& stream = *streams_[kind][static_cast<std::size_t>(op.lane)];
    for (const std::uint32_t earlier : op.after) {
      if (ops[earlier].lane != op.lane) {
        HEADRACE_TRY(stream.wait(events_[earlier], Deadline(limit_)));
      }
    }
    HEADRACE_TRY(issue(call, op, stream));
    if (program.awaited[i] || op.kind == OpKind::mark) {
      HEADRACE_TRY_ASSIGN(events_[i], stream.record());
    }
    if (op.kind == OpKind::mark) {
      milestones[static_cast<std::size_t>(op.milestone)] = events_[i];
    }
  }
  for (const SignalTotal& total : program.rank.raised) {
    Count& count = raised(total.peer, total.signal);
    count.now += total.count;
  }
  for (const SignalTotal& total : program.rank.awaited) {
    Count& count = awaited(total.signal);
    count = {.now = count.now + total.count, .before = count.now};
  }
  ++calls_[kind];
  return milestones;
}

Status Executor::hold_lanes(std::size_t kind, const Event& after) {
  if (after.done()) {
    return {};
  }
  const Stream* held = nullptr;
  for (Stream* lane : streams_[kind]) {
    if (lane != held) {
      HEADRACE_TRY(lane->wait(after, Deadline(limit_)));
      held = lane;
    }
  }
  return {};
}

Status Executor::issue(const Call& call, const Op& op, Stream& stream) {
  const std::size_t signal_offset = signals_offset_ + op.signal * k_signal_bytes;
  switch (op.kind) {
    case OpKind::copy:
      return copy(call, op, stream);
    case OpKind::sum:
    case OpKind::land:
      return sum(call, op, stream);
    case OpKind::zero: {
      const Strided& to = op.destination;
      return transport_->kernels().zero(stream, call.own_address(to.place), to.pitch,
                                        op.elements * item_size(to.dtype), op.rows);
    }
    case OpKind::put:
      return transport_->channel(op.peer).put(stream,
                                              call.pieces(op, op.destination, op.sources[0]));
    case OpKind::signal:
    case OpKind::credit:
      return transport_->channel(op.peer).signal(stream, signal_offset,
                                                 raised(op.peer, op.signal).now + op.count);
    case OpKind::wait: {
      const Count& count = awaited(op.signal);
      const std::uint64_t value = op.calls_back == 0   ? count.now + op.count
                                  : op.calls_back == 1 ? count.now
                                                       : count.before;
      return value == 0
                 ? Status()
                 : transport_->channel(op.peer).wait(stream, signal_offset, value, call.what);
    }
    case OpKind::mark:
      return {};
  }
  return {};
}

Status Executor::copy(const Call& call, const Op& op, Stream& stream) {
  const Strided& from = op.sources[0];
  const Strided& to = op.destination;
  if (from.place.region == Region::shard) {  // the one copy that may convert
    const ShardSource& shard = call.bindings.shards[from.place.index];
    if (shard.address == nullptr) {
      return {};
    }
    return transport_->kernels().cast(stream, {{.to = call.own_address(to.place),
                                                .to_dtype = to.dtype,
                                                .from = shard.address,
                                                .from_dtype = shard.dtype,
                                                .count = op.rows * op.elements}});
  }
  // From a rank of this node to this rank, or the other way round.
  const bool pulls = Call::in_arena(from.place);
  const Strided& remote = pulls ? from : to;
  const Strided& own = pulls ? to : from;
  if (call.own_address(own.place) == nullptr) {
    return {};
  }
  const std::vector<Piece> pieces = call.pieces(op, remote, own);
  Channel& channel = local_channel(remote.place);
  return pulls ? channel.get(stream, pieces) : channel.put(stream, pieces);
}

Status Executor::sum(const Call& call, const Op& op, Stream& stream) {
  const auto address = [&](const Place& place) -> const std::byte* {
    return Call::in_arena(place) ? local_channel(place).view(call.arena_offset(place))
                                 : call.own_address(place);
  };
  SumJob job{.to = reinterpret_cast<float*>(call.own_address(op.destination.place)),
             .to_pitch = op.destination.pitch,
             .sources = {},
             .rows = op.rows,
             .elements = op.elements,
             .scale = op.finish ? call.bindings.alpha : 1.0F,
             .add = op.finish && call.bindings.accumulate};
  for (std::size_t s = 0; s < op.sources.size(); ++s) {
    const Strided& source = op.sources[s];
    if (s == 0 && source.place == op.destination.place) {
      job.add = true;  // earlier waves of this call have been there
      continue;
    }
    const std::byte* from = address(source.place);
    if (from == nullptr) {
      return {};
    }
    job.sources.push_back({from, source.pitch, source.dtype});
  }
  return transport_->kernels().sum(stream, std::move(job));
}

}  // namespace headrace
