#include "plan/program_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "plan/address_map.h"

namespace headrace {
namespace {

bool moves_data(OpKind kind) { return kind <= OpKind::put; }
bool raises(OpKind kind) { return kind == OpKind::signal || kind == OpKind::credit; }

class ProgramCheck {
 public:
  ProgramCheck(const Topology& topology, const GroupSpec& group, CollectiveKind kind,
               const ScheduleShape& shape, int rank, const RankProgram& program)
      : topology_(topology),
        group_(group),
        map_(group, topology.world_size()),
        kind_(kind),
        shape_(shape),
        rank_(rank),
        program_(program) {}

  Status run() {
    for (position_ = 0; position_ < program_.ops.size(); ++position_) {
      HEADRACE_TRY(operation());
    }
    HEADRACE_TRY(milestones());
    HEADRACE_TRY(totals(program_.raised, raised_, "raises"));
    return awaited_totals();
  }

 private:
  const Op& op() const { return program_.ops[position_]; }
  Error broken(const std::string& rule) const {
    Error error = operation_error(describe(rank_, position_, op()) + ": " + rule);
    error.rank = rank_;
    return error;
  }
  Error program_error(const std::string& rule) const {
    Error error = operation_error(fmt::format("rank {}: {}", rank_, rule));
    error.rank = rank_;
    return error;
  }

  Status operation() {
    for (const std::uint32_t before : op().after) {
      if (before >= position_) {
        return broken(fmt::format("comes after operation {}, which is not an earlier one", before));
      }
    }
    if (static_cast<std::size_t>(op().lane) >= k_lanes) {
      return broken("is in no lane");
    }
    if (moves_data(op().kind)) {
      return data();
    }
    if (op().kind == OpKind::mark) {
      return mark();
    }
    return signal();
  }

  Status data() {
    const std::size_t sources = op().sources.size();
    const bool adds = op().kind == OpKind::sum || op().kind == OpKind::land;
    const std::size_t fewest = op().kind == OpKind::zero ? 0 : 1;
    if (sources < fewest || (!adds && sources > fewest)) {
      return broken(fmt::format("has {} sources", sources));
    }
    if (op().finish && !adds) {
      return broken("finishes, but does not add");
    }
    if (op().destination.place.region == Region::output && !op().finish) {
      return broken("writes to the output without finishing");
    }
    if (adds && op().destination.dtype != DType::float32) {
      return broken("adds to a destination that is not fp32");
    }
    for (const Strided& source : op().sources) {
      HEADRACE_TRY(access(source, /*writes=*/false));
      if (op().kind == OpKind::copy && kind_ == CollectiveKind::reduce_scatter &&
          item_size(op().destination.dtype) < item_size(source.dtype)) {
        return broken("narrows a gradient or a sum of gradients");
      }
    }
    if (op().kind == OpKind::land) {
      HEADRACE_TRY(land());
    }
    if (op().kind == OpKind::put) {
      return put();
    }
    return access(op().destination, /*writes=*/true);
  }

  /// The inbox of every local rank once, in order and at one offset; before them, where earlier
  /// waves have landed, what the destination holds.
  Status land() const {
    auto source = op().sources.begin();
    if (source->place.region == Region::output) {
      if (!(*source == op().destination)) {
        return broken("goes on from another place of the output than it lands in");
      }
      ++source;
    }
    const auto blocks = op().sources.end() - source;
    for (int local = 0; local < blocks; ++local) {
      const Place place = source[local].place;
      if (place.region != Region::inbox || place.local != local ||
          place.offset != source->place.offset) {
        return broken("does not land same-offset inbox blocks in the order of local ranks");
      }
    }
    if (blocks != topology_.local_ranks()) {
      return broken(fmt::format("lands the inbox blocks of {} of {} local ranks", blocks,
                                topology_.local_ranks()));
    }
    return {};
  }

  Status put() const {
    HEADRACE_TRY(peer());
    const Strided& source = op().sources.front();
    if (source.place.local != topology_.local_of(rank_) || is_user(source.place.region)) {
      return broken("puts from memory that is not this rank's arena");
    }
    if (source.dtype != op().destination.dtype) {
      return broken("converts on the way to another node");
    }
    if (topology_.node_of(op().peer) == topology_.node_of(rank_) ||
        topology_.local_of(op().peer) != topology_.local_of(rank_) ||
        op().destination.place.local != topology_.local_of(rank_)) {
      return broken("puts to what is not the same local rank of another node");
    }
    if (is_user(op().destination.place.region) ||
        op().destination.place.region == Region::resident) {
      return broken(fmt::format("puts to region {}", to_string(op().destination.place.region)));
    }
    return bounds(op().destination);
  }

  Status access(const Strided& strided, bool writes) const {
    const Place& place = strided.place;
    if (static_cast<std::size_t>(place.region) >= k_regions || place.local < 0 ||
        place.local >= topology_.local_ranks()) {
      return broken("names memory that does not exist");
    }
    if (is_user(place.region) && place.local != topology_.local_of(rank_)) {
      return broken(
          fmt::format("touches the {} of local rank {}", to_string(place.region), place.local));
    }
    const bool read_only = place.region == Region::shard || place.region == Region::resident ||
                           place.region == Region::gradient;
    if (writes && read_only) {
      return broken(fmt::format("writes to region {}", to_string(place.region)));
    }
    return bounds(strided);
  }

  /// Bytes of what the place counts its offset in.
  std::size_t size(const Strided& strided) const {
    const Place& place = strided.place;
    const std::size_t item = item_size(strided.dtype);
    switch (place.region) {
      case Region::shard:
        return map_.shard_elements(place.index, rank_) * item;
      case Region::landing:
        return map_.landing_bytes(place.index) / item_size(group_.parameters[place.index].dtype) *
               item;
      case Region::gradient:
        return static_cast<std::size_t>(group_.parameters[place.index].rows *
                                        group_.parameters[place.index].row_elements) *
               item;
      case Region::output:
        return map_.accumulator_bytes();
      default:
        return shape_[place.region].bytes;
    }
  }

  Status bounds(const Strided& strided) const {
    const Place& place = strided.place;
    const bool a_parameter = is_user(place.region) && place.region != Region::output;
    if (a_parameter ? place.index >= map_.parameters() : place.index != 0) {
      return broken(fmt::format("names {} of {}", to_string(place.region), place.index));
    }
    const std::size_t item = item_size(strided.dtype);
    if (place.offset % item != 0 || strided.pitch % item != 0) {
      return broken(fmt::format("names elements of {} that are not aligned to their size",
                                to_string(place.region)));
    }
    const std::size_t row = op().elements * item;
    const std::size_t end =
        op().rows == 0 ? 0 : place.offset + (op().rows - 1) * strided.pitch + row;
    if (end > size(strided)) {
      return broken(fmt::format("names bytes up to {} of {}, which has {}", end,
                                to_string(place.region), size(strided)));
    }
    if (op().rows > 1 && strided.pitch < row) {
      return broken(fmt::format("names rows of {} that overlap", to_string(place.region)));
    }
    return {};
  }

  Status peer() const {
    if (op().peer < 0 || op().peer >= topology_.world_size() || op().peer == rank_) {
      return broken(fmt::format("has peer {}", op().peer));
    }
    return {};
  }

  Status signal() {
    HEADRACE_TRY(peer());
    if (topology_.node_of(op().peer) != topology_.node_of(rank_) &&
        topology_.local_of(op().peer) != topology_.local_of(rank_)) {
      return broken(fmt::format("has peer {}, neither on this node nor on this rail", op().peer));
    }
    if (op().signal >= shape_.signals) {
      return broken(fmt::format("uses signal {}, but {} are in use", op().signal, shape_.signals));
    }
    const std::pair key(op().peer, op().signal);
    if (raises(op().kind)) {
      std::uint32_t& last = raised_[key];
      if (op().calls_back != 0 || op().count <= last) {
        return broken(fmt::format("raises signal {} at rank {} to {} after {}", op().signal,
                                  op().peer, op().count, last));
      }
      last = op().count;
      return {};
    }
    if ((op().count == 0) == (op().calls_back == 0)) {
      return broken("waits for neither a count of this call nor for earlier calls, or for both");
    }
    Awaited& awaited = awaited_[key];
    awaited.most = std::max(awaited.most, op().count);
    awaited.next_call = awaited.next_call || op().calls_back > 0;
    return {};
  }

  Status mark() {
    const bool gathers = kind_ == CollectiveKind::all_gather;
    const Milestone milestone = op().milestone;
    const bool known =
        milestone == Milestone::complete || (milestone == Milestone::sources_consumed) != gathers;
    if (!known) {
      return broken(fmt::format("'{}' is no milestone of this collective", to_string(milestone)));
    }
    if (++marked_[static_cast<std::size_t>(milestone)] > 1) {
      return broken(fmt::format("'{}' was reached before", to_string(milestone)));
    }
    if (milestone == Milestone::complete && position_ + 1 != program_.ops.size()) {
      return broken("is not the last operation");
    }
    return {};
  }

  Status milestones() const {
    const std::vector<Milestone> needed =
        kind_ == CollectiveKind::all_gather
            ? std::vector{Milestone::parameters_ready, Milestone::shard_read, Milestone::complete}
            : std::vector{Milestone::sources_consumed, Milestone::complete};
    for (const Milestone milestone : needed) {
      if (marked_[static_cast<std::size_t>(milestone)] == 0) {
        return program_error(fmt::format("never reaches '{}'", to_string(milestone)));
      }
    }
    return {};
  }

  using Key = std::pair<int, SignalId>;
  struct Awaited {
    std::uint32_t most = 0;
    bool next_call = false;
  };

  Status totals(const std::vector<SignalTotal>& declared,
                const std::map<Key, std::uint32_t>& counts, const char* verb) const {
    std::map<Key, std::uint32_t> left = counts;
    for (const SignalTotal& total : declared) {
      const auto found = left.find({total.peer, total.signal});
      const std::uint32_t count = found == left.end() ? 0 : found->second;
      if (found == left.end() || count != total.count) {
        return program_error(fmt::format("{} signal {} of rank {} to {}, but declares {}", verb,
                                         total.signal, total.peer, count, total.count));
      }
      left.erase(found);
    }
    if (!left.empty()) {
      const auto& [key, count] = *left.begin();
      return program_error(fmt::format("{} signal {} of rank {} to {}, but declares nothing", verb,
                                       key.second, key.first, count));
    }
    return {};
  }

  Status awaited_totals() const {
    std::map<Key, std::uint32_t> counts;
    for (const auto& [key, awaited] : awaited_) {
      counts[key] = awaited.most;
    }
    std::map<SignalId, int> posters;
    for (const SignalTotal& total : program_.awaited) {
      const auto [poster, first] = posters.try_emplace(total.signal, total.peer);
      if (!first) {
        return program_error(fmt::format("awaits signal {} of ranks {} and {}", total.signal,
                                         poster->second, total.peer));
      }
      const auto found = awaited_.find({total.peer, total.signal});
      if (found != awaited_.end() && found->second.next_call && found->second.most <= total.count) {
        counts[{total.peer, total.signal}] = total.count;  // the rest is for a later call
      }
    }
    return totals(program_.awaited, counts, "awaits");
  }

  const Topology& topology_;
  const GroupSpec& group_;
  AddressMap map_;
  CollectiveKind kind_;
  const ScheduleShape& shape_;
  int rank_;
  const RankProgram& program_;
  std::size_t position_ = 0;
  std::map<Key, std::uint32_t> raised_;
  std::map<Key, Awaited> awaited_;
  std::array<int, 4> marked_ = {};
};

}  // namespace

std::string describe(int rank, std::size_t position, const Op& op) {
  return op.kind == OpKind::mark
             ? fmt::format("rank {}, operation {} (mark '{}')", rank, position,
                           to_string(op.milestone))
             : fmt::format("rank {}, operation {} ({})", rank, position, to_string(op.kind));
}

Status program_check(const Topology& topology, const GroupSpec& group, CollectiveKind kind,
                     const ScheduleShape& shape, int rank, const RankProgram& program) {
  return ProgramCheck(topology, group, kind, shape, rank, program).run();
}

}  // namespace headrace
