#include <fmt/format.h>

#include <algorithm>

#include "plan/schedule_run.h"

namespace headrace {

Status ScheduleRun::not_given_back(int rank, const Place& place) const {
  const RankState& own = state(rank);
  if (place.region == Region::gradient && own.gradients_given_back) {
    return broken(rank, "reads a gradient after 'sources consumed'");
  }
  if (place.region == Region::landing && own.landing_given_back) {
    return broken(rank, "touches a landing after 'parameters ready'");
  }
  return {};
}

Status ScheduleRun::read(int rank, const Strided& from, std::size_t row,
                         std::vector<Extent>& extents) {
  extents.clear();
  LaneClock& clock = lane(rank);
  const std::size_t begin = from.place.offset + row * from.pitch;
  const std::size_t end = begin + op(rank).elements * item_size(from.dtype);
  HEADRACE_TRY(not_given_back(rank, from.place));
  for (Segment& segment : memory(rank, from.place, rank).range(begin, end)) {
    if (!clock.knows(segment.writer)) {
      return broken(rank, fmt::format("reads {} without an order to their writer: {}",
                                      name(rank, from.place, segment.begin, segment.end),
                                      who(segment.writer)));
    }
    // Readers that happened before this one need not be remembered beside it.
    std::erase_if(segment.readers, [&](Epoch reader) { return clock.knows(reader); });
    segment.readers.push_back(clock.now());
    Value value = segment.value;
    if (value.kind == Value::Kind::unknown && value.culprit.count == 0) {
      value.culprit = clock.now();
    }
    append(extents, {segment.end - segment.begin, value});
  }
  return {};
}

Status ScheduleRun::write(int rank, std::size_t row, std::span<const Extent> extents) {
  const Op& operation = op(rank);
  const Place& place = operation.destination.place;
  const int owner = operation.kind == OpKind::put ? operation.peer : rank;
  HEADRACE_TRY(not_given_back(rank, place));
  LaneClock& clock = lane(rank);
  const std::size_t begin = place.offset + row * operation.destination.pitch;
  const std::size_t end = begin + operation.elements * item_size(operation.destination.dtype);
  // A finished sum may be added to what the caller had in the output: it must find that.
  const bool goes_on =
      !operation.sources.empty() && operation.sources.front() == operation.destination;
  const bool once =
      (collective(rank).kind == CollectiveKind::all_gather && place.region == Region::landing) ||
      (place.region == Region::output && !goes_on);
  IntervalMemory& bytes = memory(rank, place, owner);
  for (const Segment& segment : bytes.range(begin, end)) {
    if (once && segment.writer.count > 0) {
      return broken(
          rank, fmt::format("writes {} twice in one call: before, {} did",
                            name(owner, place, segment.begin, segment.end), who(segment.writer)));
    }
    if (!clock.knows(segment.writer)) {
      return broken(
          rank, fmt::format("writes {} without an order to their last writer: {}",
                            name(owner, place, segment.begin, segment.end), who(segment.writer)));
    }
    for (const Epoch reader : segment.readers) {
      if (!clock.knows(reader)) {
        return broken(rank,
                      fmt::format("overwrites {} before their reader is done: {}",
                                  name(owner, place, segment.begin, segment.end), who(reader)));
      }
    }
  }
  bytes.write(begin, extents, clock.now());
  return {};
}

Status ScheduleRun::copy(int rank) {
  const Op& operation = op(rank);
  const Strided& source = operation.sources.front();
  const std::size_t from = item_size(source.dtype);
  const std::size_t to = item_size(operation.destination.dtype);
  for (std::size_t row = 0; row < operation.rows; ++row) {
    HEADRACE_TRY(read(rank, source, row, extents_));
    if (from != to) {
      for (Extent& extent : extents_) {
        extent.bytes = extent.bytes / from * to;
        if (extent.value.kind == Value::Kind::data) {
          if (extent.value.item_bytes == from) {
            extent.value.item_bytes = static_cast<std::uint32_t>(to);
          } else {
            extent.value = unknown(rank, Value::Fault::dtype);
          }
        }
      }
    }
    HEADRACE_TRY(write(rank, row, extents_));
  }
  return {};
}

Status ScheduleRun::zero(int rank) {
  const Op& operation = op(rank);
  const Extent extent{operation.elements * item_size(operation.destination.dtype),
                      {.kind = Value::Kind::zero}};
  for (std::size_t row = 0; row < operation.rows; ++row) {
    HEADRACE_TRY(write(rank, row, {&extent, extent.bytes > 0 ? 1U : 0U}));
  }
  return {};
}

Status ScheduleRun::sum(int rank) {
  const Op& operation = op(rank);
  addends_.resize(std::max(addends_.size(), operation.sources.size()));
  cursors_.resize(addends_.size());
  for (std::size_t row = 0; row < operation.rows; ++row) {
    for (std::size_t source = 0; source < operation.sources.size(); ++source) {
      HEADRACE_TRY(read(rank, operation.sources[source], row, addends_[source]));
      cursors_[source] = {};
    }
    extents_.clear();
    for (std::size_t done = 0; done < operation.elements;) {
      done += add(rank, operation.elements - done);
    }
    HEADRACE_TRY(write(rank, row, extents_));
  }
  return {};
}

std::size_t ScheduleRun::add(int rank, std::size_t most) {
  const Op& operation = op(rank);
  const std::size_t sources = operation.sources.size();
  for (std::size_t source = 0; source < sources; ++source) {
    const Extent& extent = addends_[source][cursors_[source].extent];
    const std::size_t left = extent.bytes - cursors_[source].bytes;
    most = std::min(most, left / item_size(operation.sources[source].dtype));
  }
  operands_.clear();
  Value total{.kind = Value::Kind::zero};
  for (std::size_t source = 0; source < sources; ++source) {
    Cursor& cursor = cursors_[source];
    const std::size_t item = item_size(operation.sources[source].dtype);
    const Extent& extent = addends_[source][cursor.extent];
    include(rank, source, extent.value.advanced(cursor.bytes), total);
    cursor.bytes += most * item;
    if (cursor.bytes == extent.bytes) {
      cursor = {cursor.extent + 1, 0};
    }
  }
  if (total.kind == Value::Kind::data) {
    if (const auto expression = expressions_.sum(operands_)) {
      total.expression = *expression;
      total.finished = operation.finish;
    } else {
      total = unknown(rank, Value::Fault::twice);
    }
  }
  append(extents_, {most * sizeof(float), total});
  return most;
}

void ScheduleRun::include(int rank, std::size_t source, Value value, Value& total) {
  if (value.kind == Value::Kind::zero || total.kind == Value::Kind::unknown) {
    return;
  }
  const Op& operation = op(rank);
  const Strided& from = operation.sources[source];
  // Only what earlier waves left in the output may be finished already, and then must be.
  const bool finished = operation.finish && from == operation.destination;
  if (value.kind == Value::Kind::unknown) {
    total = value;
  } else if (value.item_bytes != item_size(from.dtype)) {
    total = unknown(rank, Value::Fault::dtype);
  } else if (value.finished != finished) {
    total = unknown(rank, Value::Fault::unfinal);
  } else if (total.kind == Value::Kind::data &&
             (value.use != total.use || value.parameter != total.parameter ||
              value.element != total.element)) {
    total = unknown(rank, Value::Fault::mixed);
  } else {
    operands_.push_back(value.expression);
    total = value;
    total.item_bytes = sizeof(float);
  }
}

}  // namespace headrace
