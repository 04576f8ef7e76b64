#include "plan/all_gather_plan.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "plan/address_map.h"
#include "plan/all_gather_signals.h"
#include "plan/bruck.h"
#include "plan/program_builder.h"

namespace headrace {
namespace {

constexpr std::size_t k_head_alignment = 16;

/// A part of what a round sends: bytes [begin, end) of its slots, end to end, after which its slots
/// [first, last) are whole.
struct Part {
  std::size_t begin = 0;
  std::size_t end = 0;
  int first = 0;
  int last = 0;
};

class AllGatherProgram {
 public:
  AllGatherProgram(const Topology& topology, const GroupSpec& group,
                   const AllGatherOptions& options, int rank)
      : topology_(topology),
        group_(group),
        options_(options),
        map_(group, topology.world_size()),
        signals_(topology),
        rounds_(bruck_rounds(topology.nodes(), topology.node_of(rank))),
        rank_(rank),
        node_(topology.node_of(rank)),
        local_(topology.local_of(rank)) {}

  RankProgram run() && {
    own_slot();
    if (!rounds_.empty()) {
      send(0);
    }
    pull(0, 1);
    for (std::size_t round = 0; round < rounds_.size(); ++round) {
      receive(round);
    }
    finish();
    return std::move(builder_).take();
  }

 private:
  std::uint32_t add(Op op) {
    const Lane lane = op.lane;
    return last(lane) = builder_.add(std::move(op));
  }
  std::uint32_t raise(OpKind kind, Lane lane, int peer, SignalId signal,
                      std::vector<std::uint32_t> after = {}) {
    return last(lane) = builder_.raise(kind, lane, peer, signal, std::move(after));
  }
  std::uint32_t wait(Lane lane, int peer, SignalId signal, std::uint32_t count,
                     std::vector<std::uint32_t> after = {}) {
    return last(lane) = builder_.wait(lane, peer, signal, count, std::move(after));
  }
  std::uint32_t mark(Lane lane, Milestone milestone, std::vector<std::uint32_t> after = {}) {
    return last(lane) = builder_.mark(lane, milestone, std::move(after));
  }
  std::uint32_t& last(Lane lane) {
    std::optional<std::uint32_t>& position = last_[static_cast<std::size_t>(lane)];
    return position ? *position : position.emplace();
  }
  /// To come after the last operations so far of these lanes.
  std::vector<std::uint32_t> after(std::initializer_list<Lane> lanes) const {
    std::vector<std::uint32_t> positions;
    for (const Lane lane : lanes) {
      if (const auto& position = last_[static_cast<std::size_t>(lane)]) {
        positions.push_back(*position);
      }
    }
    return positions;
  }

  std::size_t slot_bytes() const { return map_.published_bytes(); }
  Place slot(int local, int slot) const {
    if (slot == 0 && !options_.cast) {
      return {.local = local, .region = Region::resident};
    }
    const int before = options_.cast ? slot : slot - 1;
    return {.local = local,
            .region = Region::stage,
            .offset = static_cast<std::size_t>(before) * slot_bytes()};
  }
  int rail_peer(int node) const { return topology_.rank_of(node, local_); }
  /// Local peers, beginning with the next.
  std::vector<int> local_peers() const {
    std::vector<int> peers;
    for (int step = 1; step < topology_.local_ranks(); ++step) {
      peers.push_back((local_ + step) % topology_.local_ranks());
    }
    return peers;
  }

  void own_slot() {
    if (options_.cast) {
      for (std::size_t parameter = 0; parameter < map_.parameters(); ++parameter) {
        const std::size_t elements = map_.shard_elements(parameter, rank_);
        if (elements == 0) {
          continue;
        }
        Place published = slot(local_, 0);
        published.offset += map_.published_offset(parameter);
        add({.kind = OpKind::copy,
             .lane = Lane::complete,
             .destination = {.place = published, .dtype = group_.parameters[parameter].dtype},
             .sources = {{.place = {.local = local_,
                                    .region = Region::shard,
                                    .index = static_cast<std::uint32_t>(parameter)},
                          .dtype = options_.shard_dtype}},
             .rows = 1,
             .elements = elements});
      }
      cast_ = after({Lane::complete});
      mark(Lane::complete, Milestone::shard_read);
    }
    tell_local_peers(cast_);
  }

  void tell_local_peers(std::vector<std::uint32_t> after = {}) {
    for (const int peer : local_peers()) {
      raise(OpKind::signal, Lane::ready, topology_.rank_of(node_, peer),
            signals_.slots_ready(local_), std::exchange(after, {}));
    }
    ++parts_ready_;
  }

  std::vector<Part> parts(std::size_t round) const {
    const int slots = rounds_[round].slots;
    const std::size_t bytes = static_cast<std::size_t>(slots) * slot_bytes();
    std::vector<Part> parts;
    if (round + 1 == rounds_.size()) {
      const int groups = std::clamp(slots / options_.min_run, 1, options_.last_round_groups);
      for (int group = 0; group < groups; ++group) {
        const int first = slots * group / groups;
        const int last = slots * (group + 1) / groups;
        parts.push_back({static_cast<std::size_t>(first) * slot_bytes(),
                         static_cast<std::size_t>(last) * slot_bytes(), first, last});
      }
      return parts;
    }
    const std::size_t head =
        options_.head_bytes / rounds_.size() / k_head_alignment * k_head_alignment;
    if (head > 0 && head < bytes) {
      parts.push_back({0, head, 0, 0});
    }
    parts.push_back({parts.empty() ? 0 : head, bytes, 0, slots});
    return parts;
  }

  void send(std::size_t round) {
    const int peer = rail_peer(rounds_[round].destination);
    if (round == 0) {
      last(Lane::network) =
          builder_.wait_for_earlier(Lane::network, peer, signals_.stage_free(), 1);
    } else {
      wait(Lane::network, peer, signals_.confirmed(round), 1);
    }
    std::vector<std::uint32_t> own = round == 0 ? cast_ : std::vector<std::uint32_t>();
    std::vector<std::uint32_t> received = after({Lane::ready});
    for (const Part& part : parts(round)) {
      // Slot 0 may lie elsewhere than the others, which lie end to end.
      const std::size_t cut = std::clamp(slot_bytes(), part.begin, part.end);
      put(round, part.begin, cut, own);
      put(round, cut, part.end, received);
      raise(OpKind::signal, Lane::network, peer, signals_.arrived(round));
    }
  }

  void put(std::size_t round, std::size_t begin, std::size_t end,
           std::vector<std::uint32_t>& needed) {
    if (begin == end) {
      return;
    }
    // Slots count in whole fp32 words, whatever they hold.
    Place from = slot(local_, begin < slot_bytes() ? 0 : 1);
    from.offset += begin < slot_bytes() ? begin : begin - slot_bytes();
    Place to = slot(local_, rounds_[round].first_received);
    to.offset += begin;
    add({.kind = OpKind::put,
         .lane = Lane::network,
         .after = std::exchange(needed, {}),
         .destination = {.place = to},
         .sources = {{.place = from}},
         .rows = 1,
         .elements = (end - begin) / sizeof(float),
         .peer = rail_peer(rounds_[round].destination)});
  }

  void receive(std::size_t round) {
    const BruckRound& own = rounds_[round];
    const bool last_round = round + 1 == rounds_.size();
    std::uint32_t count = 0;
    for (const Part& part : parts(round)) {
      wait(Lane::ready, rail_peer(own.source), signals_.arrived(round), ++count);
      if (count == 1 && !last_round) {
        raise(OpKind::signal, Lane::ready, rail_peer(rounds_[round + 1].source),
              signals_.confirmed(round + 1));
      }
      if (part.last == part.first) {
        continue;
      }
      tell_local_peers();
      if (!last_round) {
        send(round + 1);
      }
      pull(own.first_received + part.first, own.first_received + part.last);
    }
  }

  /// Copies slots [first, last) of every local rank to the landing as soon as that rank has them.
  void pull(int first, int last) {
    pull_from(local_, first, last, first == 0 ? cast_ : after({Lane::ready}));
    for (const int peer : local_peers()) {
      wait(Lane::local, topology_.rank_of(node_, peer), signals_.slots_ready(peer), parts_ready_);
      pull_from(peer, first, last, {});
    }
  }

  void pull_from(int local, int first, int last, std::vector<std::uint32_t> needed) {
    // The nodes' ranks go up along a run, but for where it comes round to node 0.
    const int wrap = std::clamp(topology_.nodes() - node_, first, last);
    for (std::size_t parameter = 0; parameter < map_.parameters(); ++parameter) {
      pull_run(local, parameter, first, wrap, needed);
      pull_run(local, parameter, wrap, last, needed);
    }
  }

  void pull_run(int local, std::size_t parameter, int first, int last,
                std::vector<std::uint32_t>& needed) {
    const std::size_t block =
        map_.block_bytes(parameter) / item_size(group_.parameters[parameter].dtype);
    const auto elements = [&](int slot) {
      return map_.shard_elements(parameter,
                                 topology_.rank_of((node_ + slot) % topology_.nodes(), local));
    };
    int whole = first;
    while (whole < last && block > 0 && elements(whole) == block) {
      ++whole;
    }
    if (whole - first >= options_.min_run) {
      copy(local, parameter, first, static_cast<std::size_t>(whole - first), block, needed);
      first = whole;
    }
    for (; first < last && elements(first) > 0; ++first) {
      copy(local, parameter, first, 1, elements(first), needed);
    }
  }

  void copy(int local, std::size_t parameter, int first, std::size_t rows, std::size_t elements,
            std::vector<std::uint32_t>& needed) {
    const DType dtype = group_.parameters[parameter].dtype;
    const int owner = topology_.rank_of((node_ + first) % topology_.nodes(), local);
    Place from = slot(local, first);
    from.offset += map_.published_offset(parameter);
    const auto pitch_ranks = static_cast<std::size_t>(topology_.local_ranks());
    add({.kind = OpKind::copy,
         .lane = Lane::local,
         .after = std::exchange(needed, {}),
         .destination = {.place = {.local = local_,
                                   .region = Region::landing,
                                   .index = static_cast<std::uint32_t>(parameter),
                                   .offset = map_.landing_offset(parameter, owner)},
                         .pitch = pitch_ranks * map_.block_bytes(parameter),
                         .dtype = dtype},
         .sources = {{.place = from, .pitch = slot_bytes(), .dtype = dtype}},
         .rows = rows,
         .elements = elements});
  }

  void finish() {
    const std::uint32_t landed = mark(Lane::local, Milestone::parameters_ready);
    for (const int peer : local_peers()) {
      raise(OpKind::credit, Lane::local, topology_.rank_of(node_, peer),
            signals_.slots_read(local_));
    }
    for (const int peer : local_peers()) {
      wait(Lane::complete, topology_.rank_of(node_, peer), signals_.slots_read(peer), 1);
    }
    std::vector<std::uint32_t> own_reads = after({Lane::network});
    own_reads.push_back(landed);
    if (!options_.cast) {
      mark(Lane::complete, Milestone::shard_read, std::exchange(own_reads, {}));
    }
    if (!rounds_.empty()) {
      raise(OpKind::credit, Lane::complete, rail_peer(rounds_.front().source),
            signals_.stage_free(), std::exchange(own_reads, {}));
    }
    std::vector<std::uint32_t> all = after({Lane::ready, Lane::local});
    all.insert(all.end(), own_reads.begin(), own_reads.end());
    mark(Lane::complete, Milestone::complete, std::move(all));
  }

  const Topology& topology_;
  const GroupSpec& group_;
  const AllGatherOptions& options_;
  AddressMap map_;
  AllGatherSignals signals_;
  std::vector<BruckRound> rounds_;
  int rank_;
  int node_;
  int local_;
  ProgramBuilder builder_;
  std::array<std::optional<std::uint32_t>, k_lanes> last_;
  std::vector<std::uint32_t> cast_;  ///< the last operation that fills slot 0, if any does
  std::uint32_t parts_ready_ = 0;    ///< as local peers have been told
};

}  // namespace

ScheduleShape all_gather_shape(const Topology& topology, const GroupSpec& group,
                               const AllGatherOptions& options) {
  const std::size_t slot = AddressMap(group, topology.world_size()).published_bytes();
  const auto received = static_cast<std::size_t>(topology.nodes() - 1);
  ScheduleShape shape;
  if (!options.cast) {
    shape.regions[static_cast<std::size_t>(Region::resident)].bytes = slot;
  }
  shape.regions[static_cast<std::size_t>(Region::stage)].bytes =
      (received + (options.cast ? 1 : 0)) * slot;
  shape.signals = AllGatherSignals(topology).count();
  return shape;
}

RankProgram all_gather_program(const Topology& topology, const GroupSpec& group,
                               const AllGatherOptions& options, int rank) {
  return AllGatherProgram(topology, group, options, rank).run();
}

}  // namespace headrace
