#include "collective/executor.h"

#include <cstring>
#include <utility>

#include "kernel/cast.h"
#include "kernel/sum.h"

namespace headrace {

Program::Program(CollectiveKind kind_of, const ScheduleShape& shape_of, RankProgram program)
    : kind(kind_of), shape(shape_of), rank(std::move(program)), awaited(rank.ops.size(), false) {
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
  const Program& program;
  const ArenaRegions& regions;
  const Bindings& bindings;
  const char* what;
  std::uint64_t number;  ///< of its kind
  int node;
  int local;

  /// Offset in the memory of any rank of the node; `place` lies in an arena region.
  std::size_t arena_offset(const Place& place) const {
    const ArenaRegion& region = regions[static_cast<std::size_t>(place.region)];
    return region.offset + number % region.size.banks * region.size.bytes + place.offset;
  }

  static bool in_arena(const Place& place) { return place.region >= Region::resident; }

  /// Null where the caller has bound nothing.
  std::byte* user_address(const Place& place) const {
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
      default:
        return at(bindings.output);
    }
  }
};

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
                                 const Bindings& bindings, const char* what) {
  const auto kind = static_cast<std::size_t>(program.kind);
  const Call call{.program = program,
                  .regions = regions,
                  .bindings = bindings,
                  .what = what,
                  .number = calls_[kind],
                  .node = topology_.node_of(rank_),
                  .local = topology_.local_of(rank_)};
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
      std::byte* address = transport_->memory() + call.arena_offset(to.place);
      return stream.enqueue([address, pitch = to.pitch, rows = op.rows,
                             bytes = op.elements * item_size(to.dtype)]() -> Status {
        for (std::size_t row = 0; row < rows; ++row) {
          std::memset(address + row * pitch, 0, bytes);
        }
        return {};
      });
    }
    case OpKind::put: {
      const Strided& from = op.sources[0];
      std::vector<Piece> pieces;
      for (std::size_t row = 0; row < op.rows; ++row) {
        pieces.push_back(
            {.remote_offset = call.arena_offset(op.destination.place) + row * op.destination.pitch,
             .local = transport_->memory() + call.arena_offset(from.place) + row * from.pitch,
             .bytes = op.elements * item_size(from.dtype)});
      }
      return transport_->channel(op.peer).put(stream, pieces);
    }
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
    std::byte* address = transport_->memory() + call.arena_offset(to.place);
    return stream.enqueue([address, shard, to, rows = op.rows, count = op.elements]() -> Status {
      if (shard.address != nullptr) {
        cast(address, to.dtype, shard.address, shard.dtype, rows * count);
      }
      return {};
    });
  }
  const std::size_t bytes = op.elements * item_size(from.dtype);
  const auto pieces = [&](std::size_t remote, std::size_t remote_pitch, std::byte* local,
                          std::size_t local_pitch) {
    std::vector<Piece> result;
    result.reserve(op.rows);
    for (std::size_t row = 0; row < op.rows; ++row) {
      result.push_back({.remote_offset = remote + row * remote_pitch,
                        .local = local + row * local_pitch,
                        .bytes = bytes});
    }
    return result;
  };
  if (Call::in_arena(from.place)) {  // from a rank of this node, to this rank
    std::byte* local = Call::in_arena(to.place) ? transport_->memory() + call.arena_offset(to.place)
                                                : call.user_address(to.place);
    if (local == nullptr) {
      return {};
    }
    return transport_->channel(topology_.rank_of(call.node, from.place.local))
        .get(stream, pieces(call.arena_offset(from.place), from.pitch, local, to.pitch));
  }
  std::byte* local = call.user_address(from.place);
  if (local == nullptr) {
    return {};
  }
  return transport_->channel(topology_.rank_of(call.node, to.place.local))
      .put(stream, pieces(call.arena_offset(to.place), to.pitch, local, from.pitch));
}

Status Executor::sum(const Call& call, const Op& op, Stream& stream) {
  const auto address = [&](const Place& place) -> const std::byte* {
    if (!Call::in_arena(place)) {
      return call.user_address(place);
    }
    return transport_->channel(topology_.rank_of(call.node, place.local)).view() +
           call.arena_offset(place);
  };
  struct Row {
    const std::byte* address;
    std::size_t pitch;
    DType dtype;
  };
  std::byte* to = Call::in_arena(op.destination.place)
                      ? transport_->memory() + call.arena_offset(op.destination.place)
                      : call.user_address(op.destination.place);
  bool add = op.finish && call.bindings.accumulate;
  std::vector<Row> sources;
  for (std::size_t s = 0; s < op.sources.size(); ++s) {
    const Strided& source = op.sources[s];
    if (s == 0 && source.place == op.destination.place) {
      add = true;  // earlier waves of this call have been there
      continue;
    }
    const std::byte* from = address(source.place);
    if (from == nullptr) {
      return {};
    }
    sources.push_back({from, source.pitch, source.dtype});
  }
  const float scale = op.finish ? call.bindings.alpha : 1.0F;
  return stream.enqueue([to, to_pitch = op.destination.pitch, sources = std::move(sources), scale,
                         add, rows = op.rows, count = op.elements]() -> Status {
    std::vector<Summand> summands(sources.size());
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t s = 0; s < sources.size(); ++s) {
        summands[s] = {sources[s].address + row * sources[s].pitch, sources[s].dtype};
      }
      headrace::sum(reinterpret_cast<float*>(to + row * to_pitch), summands, count, scale, add);
    }
    return {};
  });
}

}  // namespace headrace
