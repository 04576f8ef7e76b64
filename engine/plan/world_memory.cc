#include "plan/world_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/program_check.h"

namespace headrace {
namespace {

constexpr Region k_first_shared = Region::stage;

/// Of one collective's own memories: resident and output, then shard, landing and gradient by
/// parameter.
constexpr std::size_t k_single = 2;
constexpr std::size_t k_by_parameter = 3;

bool is_shared(Region region) { return region >= k_first_shared; }

std::size_t elements(const ParameterSpec& parameter) {
  return static_cast<std::size_t>(parameter.rows * parameter.row_elements);
}

Value data_value(std::uint32_t use, std::size_t parameter, std::size_t element, std::size_t item,
                 std::uint32_t expression) {
  return {.kind = Value::Kind::data,
          .item_bytes = static_cast<std::uint32_t>(item),
          .use = use,
          .parameter = static_cast<std::uint32_t>(parameter),
          .element = element,
          .expression = expression};
}

}  // namespace

Result<UserDTypes> user_dtypes(const Collective& collective) {
  UserDTypes dtypes;
  for (const ParameterSpec& parameter : collective.group.parameters) {
    dtypes.shard.push_back(parameter.dtype);
    dtypes.gradient.push_back(parameter.dtype);
  }
  std::vector<bool> shard_named(dtypes.shard.size(), false);
  std::vector<bool> gradient_named(dtypes.shard.size(), false);
  for (std::size_t rank = 0; rank < collective.programs.size(); ++rank) {
    const std::vector<Op>& ops = collective.programs[rank].ops;
    for (std::size_t position = 0; position < ops.size(); ++position) {
      for (const Strided& source : ops[position].sources) {
        const bool shard = source.place.region == Region::shard;
        if (!shard && source.place.region != Region::gradient) {
          continue;
        }
        DType& dtype = (shard ? dtypes.shard : dtypes.gradient)[source.place.index];
        std::vector<bool>& named = shard ? shard_named : gradient_named;
        if (named[source.place.index] && dtype != source.dtype) {
          return operation_error(
              fmt::format("{}: reads {} {} as {}, which others read as {}",
                          describe(static_cast<int>(rank), position, ops[position]),
                          to_string(source.place.region), source.place.index,
                          to_string(source.dtype), to_string(dtype)));
        }
        named[source.place.index] = true;
        dtype = source.dtype;
      }
    }
  }
  return dtypes;
}

WorldMemory::WorldMemory(const Topology& topology, std::span<const Collective> collectives,
                         std::span<const UserDTypes> dtypes)
    : topology_(topology), collectives_(collectives), dtypes_(dtypes) {
  const int world = topology.world_size();
  std::array<std::size_t, k_regions> bytes = {};
  for (const Collective& collective : collectives) {
    maps_.emplace_back(collective.group, world);
    user_start_.push_back(arena_start_);
    arena_start_ += k_single + k_by_parameter * maps_.back().parameters();
    for (std::size_t region = 0; region < k_regions; ++region) {
      bytes[region] = std::max(bytes[region], collective.shape.regions[region].bytes);
      banks_ = std::max(banks_, collective.shape.regions[region].banks);
    }
    std::vector<std::vector<std::size_t>>& firsts = first_elements_.emplace_back();
    for (std::size_t parameter = 0; parameter < maps_.back().parameters(); ++parameter) {
      std::size_t first = 0;
      std::vector<std::size_t>& of_ranks = firsts.emplace_back();
      for (int rank = 0; rank < world; ++rank) {
        of_ranks.push_back(first);
        first += maps_.back().shard_elements(parameter, rank);
      }
    }
  }
  memories_.resize(static_cast<std::size_t>(world));
  for (std::vector<IntervalMemory>& memories : memories_) {
    memories.resize(arena_start_);
    for (auto region = static_cast<std::size_t>(k_first_shared); region < k_regions; ++region) {
      memories.insert(memories.end(), banks_, IntervalMemory(bytes[region]));
    }
  }
}

IntervalMemory& WorldMemory::own(int rank, Region region, std::size_t index,
                                 std::size_t collective) {
  const std::size_t parameters = maps_[collective].parameters();
  std::size_t at = user_start_[collective];
  switch (region) {
    case Region::resident:
      break;
    case Region::output:
      at += 1;
      break;
    case Region::shard:
      at += k_single + index;
      break;
    case Region::landing:
      at += k_single + parameters + index;
      break;
    default:
      at += k_single + 2 * parameters + index;
      break;
  }
  return memories_[static_cast<std::size_t>(rank)][at];
}

IntervalMemory& WorldMemory::at(int rank, const Place& place, std::size_t collective,
                                std::size_t call) {
  const int owner = topology_.rank_of(topology_.node_of(rank), place.local);
  if (!is_shared(place.region)) {
    return own(owner, place.region, place.index, collective);
  }
  const auto region =
      static_cast<std::size_t>(place.region) - static_cast<std::size_t>(k_first_shared);
  const std::size_t bank = call % collectives_[collective].shape[place.region].banks;
  return memories_[static_cast<std::size_t>(owner)][arena_start_ + region * banks_ + bank];
}

void WorldMemory::fill_shard(int rank, std::size_t collective, std::uint32_t use, Epoch writer) {
  const AddressMap& map = maps_[collective];
  IntervalMemory& resident = own(rank, Region::resident, 0, collective);
  resident.reset(collectives_[collective].shape[Region::resident].bytes);
  for (std::size_t parameter = 0; parameter < map.parameters(); ++parameter) {
    const std::size_t first = first_element(collective, parameter, rank);
    const std::size_t count = map.shard_elements(parameter, rank);
    const std::size_t item = item_size(dtypes_[collective].shard[parameter]);
    IntervalMemory& shard = own(rank, Region::shard, parameter, collective);
    shard.reset(count * item);
    const Extent rows{count * item, data_value(use, parameter, first, item, 0)};
    shard.write(0, {&rows, 1}, writer);
    if (resident.bytes() >= map.published_bytes()) {
      const std::size_t published =
          item_size(collectives_[collective].group.parameters[parameter].dtype);
      const Extent adopted{count * published, data_value(use, parameter, first, published, 0)};
      resident.write(map.published_offset(parameter), {&adopted, 1}, writer);
    }
  }
}

void WorldMemory::begin_call(int rank, std::size_t collective, std::uint32_t use, Epoch writer) {
  const AddressMap& map = maps_[collective];
  const std::vector<ParameterSpec>& parameters = collectives_[collective].group.parameters;
  own(rank, Region::output, 0, collective).reset(map.accumulator_bytes());
  for (std::size_t parameter = 0; parameter < map.parameters(); ++parameter) {
    // A landing that gradients are copied to holds them in their own dtype.
    const std::size_t item = item_size(dtypes_[collective].gradient[parameter]);
    const std::size_t landing =
        map.landing_bytes(parameter) / item_size(parameters[parameter].dtype);
    own(rank, Region::landing, parameter, collective).reset(landing * item);
    IntervalMemory& gradient = own(rank, Region::gradient, parameter, collective);
    const std::size_t bytes = elements(parameters[parameter]) * item;
    gradient.reset(bytes);
    const Extent rows{bytes, data_value(use, parameter, 0, item, static_cast<std::uint32_t>(rank))};
    gradient.write(0, {&rows, 1}, writer);
  }
}

}  // namespace headrace
