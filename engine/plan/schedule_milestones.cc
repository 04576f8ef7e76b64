#include <fmt/format.h>

#include "plan/schedule_run.h"

namespace headrace {

Status ScheduleRun::mark(int rank) {
  switch (op(rank).milestone) {
    case Milestone::parameters_ready:
      return parameters_ready(rank);
    case Milestone::shard_read:
      return shard_read(rank);
    case Milestone::sources_consumed:
      return sources_consumed(rank);
    case Milestone::complete:
      return complete(rank);
  }
  return {};
}

Status ScheduleRun::caller_reads(int rank, const Place& place, std::size_t bytes,
                                 const Value& expected) {
  const bool reduces = collective(rank).kind == CollectiveKind::reduce_scatter;
  const std::size_t begin = place.offset;
  for (const Segment& segment : memory(rank, place, rank).range(begin, begin + bytes)) {
    if (!lane(rank).knows(segment.writer)) {
      return broken(
          rank, fmt::format("is reached without an order to the writer of {}: {}",
                            name(rank, place, segment.begin, segment.end), who(segment.writer)));
    }
    Value wanted = expected.advanced(segment.begin - begin);
    if (reduces && segment.value.kind == Value::Kind::data) {
      wanted.expression = segment.value.expression;
    }
    if (!(segment.value == wanted)) {
      return broken(
          rank, fmt::format("{} should hold {} but hold {}",
                            name(rank, place, segment.begin, segment.end),
                            holds(expected.advanced(segment.begin - begin)), holds(segment.value)));
    }
    if (reduces) {
      HEADRACE_TRY(all_contribute(rank, place, segment));
    }
  }
  return {};
}

Status ScheduleRun::all_contribute(int rank, const Place& place, const Segment& segment) const {
  for (int contributor = 0; contributor < topology_.world_size(); ++contributor) {
    if (!expressions_.contributes(segment.value.expression,
                                  static_cast<std::size_t>(contributor))) {
      return broken(rank, fmt::format("{} lack the contribution of rank {}",
                                      name(rank, place, segment.begin, segment.end), contributor));
    }
  }
  return {};
}

Status ScheduleRun::no_readers_left(int rank, const Place& place) {
  IntervalMemory& bytes = memory(rank, place, rank);
  for (const Segment& segment : bytes.segments()) {
    for (const Epoch reader : segment.readers) {
      if (!lane(rank).knows(reader)) {
        return broken(rank,
                      fmt::format("is reached before a reader of {} is done: {}",
                                  name(rank, place, segment.begin, segment.end), who(reader)));
      }
    }
  }
  return {};
}

Place ScheduleRun::own_place(int rank, Region region, std::size_t index, std::size_t offset) const {
  return {.local = topology_.local_of(rank),
          .region = region,
          .index = static_cast<std::uint32_t>(index),
          .offset = offset};
}

Status ScheduleRun::parameters_ready(int rank) {
  const std::size_t index = collective_index(rank);
  const AddressMap& map = memory_.map(index);
  for (std::size_t parameter = 0; parameter < map.parameters(); ++parameter) {
    const DType dtype = collective(rank).group.parameters[parameter].dtype;
    Value expected{.kind = Value::Kind::data,
                   .item_bytes = static_cast<std::uint32_t>(item_size(dtype)),
                   .use = use(rank),
                   .parameter = static_cast<std::uint32_t>(parameter)};
    for (int owner = 0; owner < topology_.world_size(); ++owner) {
      expected.element = memory_.first_element(index, parameter, owner);
      HEADRACE_TRY(caller_reads(
          rank, own_place(rank, Region::landing, parameter, map.landing_offset(parameter, owner)),
          map.shard_bytes(parameter, owner), expected));
    }
  }
  state(rank).landing_given_back = true;
  return {};
}

Status ScheduleRun::shard_read(int rank) {
  const std::size_t index = collective_index(rank);
  HEADRACE_TRY(no_readers_left(rank, own_place(rank, Region::resident)));
  for (std::size_t parameter = 0; parameter < memory_.map(index).parameters(); ++parameter) {
    HEADRACE_TRY(no_readers_left(rank, own_place(rank, Region::shard, parameter)));
  }
  // The caller may have changed its parameters before it calls again.
  const std::uint32_t next = state(rank).uses[index] + 1;
  memory_.fill_shard(rank, index, use(index, next), caller(rank, index, next));
  return {};
}

Status ScheduleRun::sources_consumed(int rank) {
  for (std::size_t parameter = 0; parameter < collective(rank).group.parameters.size();
       ++parameter) {
    HEADRACE_TRY(no_readers_left(rank, own_place(rank, Region::gradient, parameter)));
  }
  state(rank).gradients_given_back = true;
  return {};
}

Status ScheduleRun::complete(int rank) {
  for (std::size_t at = 0; at < k_lanes; ++at) {
    const Epoch last = state(rank).lanes[kind(collective(rank)) * k_lanes + at].now();
    if (!lane(rank).knows(last)) {
      return broken(rank, fmt::format("is reached without an order to {}", who(last)));
    }
  }
  return collective(rank).kind == CollectiveKind::reduce_scatter ? output(rank) : Status();
}

Status ScheduleRun::output(int rank) {
  const std::size_t index = collective_index(rank);
  const AddressMap& map = memory_.map(index);
  std::vector<std::pair<std::size_t, std::uint32_t>> sums;  // where another expression starts
  for (std::size_t parameter = 0; parameter < map.parameters(); ++parameter) {
    const Place place = own_place(rank, Region::output, 0, map.accumulator_offset(parameter));
    const std::size_t bytes = map.shard_elements(parameter, rank) * sizeof(float);
    HEADRACE_TRY(caller_reads(rank, place, bytes,
                              {.kind = Value::Kind::data,
                               .finished = true,
                               .item_bytes = sizeof(float),
                               .use = use(rank),
                               .parameter = static_cast<std::uint32_t>(parameter),
                               .element = memory_.first_element(index, parameter, rank)}));
    for (const Segment& segment :
         memory(rank, place, rank).range(place.offset, place.offset + bytes)) {
      if (sums.empty() || sums.back().second != segment.value.expression) {
        sums.emplace_back(segment.begin, segment.value.expression);
      }
    }
  }
  auto& first = state(rank).sums[index];
  if (state(rank).uses[index] == 0) {
    first = std::move(sums);
  } else if (sums != first) {
    return broken(rank, "the output is summed in another order than in the first call");
  }
  return {};
}

}  // namespace headrace
