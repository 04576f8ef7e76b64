#include "transport/fake/faulty_channel.h"

#include <fmt/format.h>

#include <thread>
#include <utility>
#include <vector>

namespace headrace {

Status FaultyChannel::apply(LaneOperation operation, const std::function<Status()>& run) {
  if (stopped_) {
    return {};
  }
  const Fault fault = plan_(source_, peer(), operation, number_++);
  switch (fault.kind) {
    case Fault::Kind::drop:
      return {};
    case Fault::Kind::stop:
      stopped_ = true;
      return {};
    case Fault::Kind::reorder:
      if (operation != LaneOperation::get) {
        held_ = run;
        return {};
      }
      break;
    case Fault::Kind::delay:
      std::this_thread::sleep_for(fault.delay);
      break;
    case Fault::Kind::none:
      break;
  }
  HEADRACE_TRY(run());
  if (held_) {
    return std::exchange(held_, nullptr)();
  }
  return {};
}

Status FaultyChannel::get(Stream& stream, std::span<const Piece> pieces) {
  bool happened = false;
  Status status = apply(LaneOperation::get, [&] {
    happened = true;
    return channel_->get(stream, pieces);
  });
  if (status && !happened) {
    return peer_error(peer(), fmt::format("a read from rank {} did not complete", peer()));
  }
  return status;
}

Status FaultyChannel::put(Stream& stream, std::span<const Piece> pieces) {
  return apply(LaneOperation::put,
               [this, &stream, pieces = std::vector(pieces.begin(), pieces.end())] {
                 return channel_->put(stream, pieces);
               });
}

Status FaultyChannel::accumulate(Stream& stream, const AccumulatorRegion& region,
                                 std::span<const Addend> addends) {
  return apply(LaneOperation::accumulate,
               [this, &stream, region, addends = std::vector(addends.begin(), addends.end())] {
                 return channel_->accumulate(stream, region, addends);
               });
}

Status FaultyChannel::signal(Stream& stream, std::size_t remote_offset, std::uint64_t value) {
  return apply(LaneOperation::signal, [this, &stream, remote_offset, value] {
    return channel_->signal(stream, remote_offset, value);
  });
}

Status FaultyChannel::flush(Stream& stream) {
  if (held_) {
    HEADRACE_TRY(std::exchange(held_, nullptr)());
  }
  return channel_->flush(stream);
}

}  // namespace headrace
