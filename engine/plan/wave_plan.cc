#include "plan/wave_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked_math.h"
#include "plan/latin_square.h"

namespace headrace {

Result<WavePlan> WavePlan::make(const Topology& topology, WaveOptions options) {
  if (options.width < 1 || options.width > topology.local_ranks()) {
    return operation_error(
        fmt::format("waves of {} contributors do not fit nodes of {} ranks: choose 1 to {}",
                    options.width, topology.local_ranks(), topology.local_ranks()));
  }
  if (options.transfers < 1 || options.passes < 1) {
    return operation_error(
        fmt::format("a reduce-scatter needs at least one transfer a round and "
                    "one pass, not {} and {}",
                    options.transfers, options.passes));
  }
  if (const auto collision = find_collision(topology, options.width)) {
    return operation_error(fmt::format(
        "waves of {} contributors collide with {} nodes of {} ranks: contributors {} and {} of "
        "wave {} would share a local rank; choose a width that divides {}",
        options.width, topology.nodes(), topology.local_ranks(), collision->first,
        collision->second, collision->wave, topology.local_ranks()));
  }
  return WavePlan(topology, options);
}

WavePlan::WavePlan(const Topology& topology, WaveOptions options)
    : topology_(topology), options_(options) {
  const int nodes = topology.nodes();
  waves_.reserve(static_cast<std::size_t>(ceil_div(nodes, options.width)));
  for (int first = 1; first <= nodes; first += options.width) {
    const int end = std::min(first + options.width, nodes + 1);
    const int remote_end = std::min(end, nodes);
    const auto first_round = static_cast<int>(rounds_.size());
    for (int next = first; next < remote_end; next += options.transfers) {
      rounds_.push_back(
          {.first = next, .transfers = std::min(options.transfers, remote_end - next)});
    }
    waves_.push_back({.first = first,
                      .contributors = end - first,
                      .first_round = first_round,
                      .rounds = static_cast<int>(rounds_.size()) - first_round});
  }
}

int WavePlan::outbox_blocks(GradientMode mode) const {
  if (mode == GradientMode::in_place) {
    return remote_blocks();
  }
  // Where there are several passes, the last round of one comes before the first of the next.
  int previous = options_.passes > 1 && !rounds_.empty() ? rounds_.back().transfers : 0;
  int blocks = 0;
  for (const Round& round : rounds_) {
    blocks = std::max(blocks, previous + round.transfers);
    previous = round.transfers;
  }
  return blocks;
}

std::vector<bool> WavePlan::filled_residues(int wave) const {
  const LatinSquare square(topology_);
  std::vector<bool> filled(static_cast<std::size_t>(topology_.local_ranks()), false);
  const Wave& of_pass = waves_[static_cast<std::size_t>(wave) % waves_.size()];
  for (int i = 0; i < of_pass.contributors; ++i) {
    filled[static_cast<std::size_t>(square.residue(of_pass.first + i))] = true;
  }
  return filled;
}

std::vector<int> WavePlan::stale_residues(int wave) const {
  const std::vector<bool> filled = filled_residues(wave);
  const int before = wave - generations();
  std::vector<bool> dirty(filled.size(), true);
  if (before >= 0) {
    dirty = filled_residues(before);
  }
  std::vector<int> stale;
  for (std::size_t residue = 0; residue < filled.size(); ++residue) {
    if (dirty[residue] && !filled[residue]) {
      stale.push_back(static_cast<int>(residue));
    }
  }
  return stale;
}

const char* to_string(GradientMode mode) {
  return mode == GradientMode::in_place ? "in-place" : "slot-reuse";
}

}  // namespace headrace
