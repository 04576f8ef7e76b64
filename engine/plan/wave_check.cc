#include "plan/wave_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "plan/latin_square.h"

namespace headrace {
namespace {

constexpr std::array k_modes{GradientMode::in_place, GradientMode::slot_reuse};
constexpr std::size_t k_reported_failures = 8;

Error failure(const WaveParts& parts, const std::string& what) {
  return operation_error(
      fmt::format("{} nodes of {}, waves of {}, {} transfers a round, {} passes: {}",
                  parts.topology.nodes(), parts.topology.local_ranks(), parts.options.width,
                  parts.options.transfers, parts.options.passes, what));
}

/// The contents of one local rank's share of an inbox generation, by residue. All local ranks hold
/// the same, in different blocks.
class InboxGeneration {
 public:
  explicit InboxGeneration(int local_ranks)
      : holds_(static_cast<std::size_t>(local_ranks), k_other_call) {}

  /// False where this wave has written the block before.
  bool write(int residue, int wave) {
    int& held = holds_[static_cast<std::size_t>(residue)];
    const bool is_first = held != wave;
    held = wave;
    return is_first;
  }
  void zero(int residue) { holds_[static_cast<std::size_t>(residue)] = k_zero; }
  /// Contributors of this wave that a combine adds; -1 where it would add anything else.
  int combine(int wave) const {
    int added = 0;
    for (const int held : holds_) {
      if (held == wave) {
        ++added;
      } else if (held != k_zero) {
        return -1;
      }
    }
    return added;
  }

 private:
  static constexpr int k_zero = -1;
  static constexpr int k_other_call = -2;
  std::vector<int> holds_;
};

bool is_empty(const IntRange& range) { return range.first < 1 || range.last < range.first; }

class Sweep {
 public:
  explicit Sweep(const WaveSweep& sweep) : sweep_(sweep) {}

  void check_width(const Topology& topology, int width) {
    // What comes into the inbox does not depend on the transfers a round.
    std::vector<Status> inbox;
    for (int transfers = sweep_.transfers.first; transfers <= sweep_.transfers.last; ++transfers) {
      for (int passes = 1; passes <= sweep_.passes; ++passes) {
        const auto plan =
            WavePlan::make(topology, {.width = width, .transfers = transfers, .passes = passes});
        if (passes == 1) {
          count(plan);
        }
        if (!plan) {
          break;
        }
        const WaveParts parts = WaveParts::of(plan.value());
        if (inbox.size() < static_cast<std::size_t>(passes)) {
          inbox.push_back(check_inbox(parts));
        }
        check(plan.value(), parts, inbox[static_cast<std::size_t>(passes) - 1]);
      }
    }
  }

  WaveSweepResult result() && { return std::move(result_); }

 private:
  void count(const Result<WavePlan>& plan) {
    (plan ? result_.accepted : result_.rejected) += static_cast<std::int64_t>(k_modes.size());
    if (!plan && result_.first_rejection.empty()) {
      result_.first_rejection = plan.error().message;
    }
  }

  void check(const WavePlan& plan, const WaveParts& parts, const Status& inbox) {
    const Status rounds = check_rounds(parts);
    for (const GradientMode mode : k_modes) {
      ++result_.checked;
      const int blocks = plan.outbox_blocks(mode);
      const Status outbox = check_outbox(parts, blocks);
      if (!inbox) {
        fail(inbox.error());
      } else if (!rounds) {
        fail(rounds.error());
      } else if (!outbox) {
        fail(outbox.error());
      } else if (mode == GradientMode::slot_reuse && blocks > 2 * parts.options.transfers) {
        fail(failure(parts, fmt::format("a partial outbox of {} blocks", blocks)));
      }
    }
  }

  void fail(const Error& error) {
    ++result_.failed;
    if (result_.failures.size() < k_reported_failures) {
      result_.failures.push_back(error.message);
    }
  }

  const WaveSweep& sweep_;
  WaveSweepResult result_;
};

}  // namespace

WaveParts WaveParts::of(const WavePlan& plan) {
  return {.topology = plan.topology(),
          .options = plan.options(),
          .waves = plan.waves(),
          .rounds = plan.rounds(),
          .generations = plan.generations(),
          .stale_residues = [&plan](int wave) { return plan.stale_residues(wave); }};
}

Status check_inbox(const WaveParts& parts) {
  const LatinSquare square(parts.topology);
  std::vector<InboxGeneration> inbox(static_cast<std::size_t>(parts.generations),
                                     InboxGeneration(parts.topology.local_ranks()));
  int wave = 0;
  for (int pass = 0; pass < parts.options.passes; ++pass) {
    for (const Wave& members : parts.waves) {
      InboxGeneration& generation = inbox[static_cast<std::size_t>(wave % parts.generations)];
      for (int i = 0; i < members.contributors; ++i) {
        if (!generation.write(square.residue(members.first + i), wave)) {
          return failure(parts, fmt::format("contributor {} overwrites another of wave {}",
                                            members.first + i, wave));
        }
      }
      for (const int residue : parts.stale_residues(wave)) {
        generation.zero(residue);
      }
      const int added = generation.combine(wave);
      if (added < 0) {
        return failure(parts, fmt::format("wave {} would add a stale block", wave));
      }
      if (added != members.contributors) {
        return failure(parts, fmt::format("wave {} would add {} contributors instead of {}", wave,
                                          added, members.contributors));
      }
      ++wave;
    }
  }
  return {};
}

Status check_rounds(const WaveParts& parts) {
  const int nodes = parts.topology.nodes();
  int next_contributor = 1;
  int next_remote = 1;
  std::size_t next_round = 0;
  for (const Wave& wave : parts.waves) {
    const int end = wave.first + wave.contributors;
    if (wave.first != next_contributor || wave.contributors < 1 ||
        wave.contributors > parts.options.width || wave.rounds < 0 ||
        static_cast<std::size_t>(wave.first_round) != next_round ||
        next_round + static_cast<std::size_t>(wave.rounds) > parts.rounds.size()) {
      return failure(parts, fmt::format("the wave from contributor {} on is out of order or size",
                                        wave.first));
    }
    for (int i = 0; i < wave.rounds; ++i, ++next_round) {
      const Round& round = parts.rounds[next_round];
      if (round.first != next_remote || round.transfers < 1 ||
          round.transfers > parts.options.transfers || round.first + round.transfers > end) {
        return failure(parts, fmt::format("round {} is out of order, size or wave", next_round));
      }
      next_remote += round.transfers;
    }
    if (next_remote != std::min(end, nodes)) {
      return failure(parts, fmt::format("contributor {} is in no round", next_remote));
    }
    next_contributor = end;
  }
  if (next_contributor != nodes + 1 || next_round != parts.rounds.size()) {
    return failure(parts,
                   fmt::format("{} of {} contributors and {} of {} rounds are in waves",
                               next_contributor - 1, nodes, next_round, parts.rounds.size()));
  }
  return {};
}

Status check_outbox(const WaveParts& parts, int blocks) {
  int sent = 0;    // partials of earlier rounds, whose blocks are free again
  int summed = 0;  // partials that have or had a block
  for (int pass = 0; pass < parts.options.passes; ++pass) {
    for (const Round& round : parts.rounds) {
      const int wanted = sent + round.transfers;
      if (sent > 0 && summed < wanted) {
        return failure(parts, fmt::format("with {} outbox blocks partial {} has none before the "
                                          "round ahead of it is sent",
                                          blocks, summed + 1));
      }
      summed = sent + blocks;
      if (summed < wanted) {
        return failure(
            parts, fmt::format("with {} outbox blocks partial {} has none", blocks, summed + 1));
      }
      sent = wanted;
    }
  }
  return {};
}

Result<WaveSweepResult> sweep_waves(const WaveSweep& sweep) {
  if (is_empty(sweep.nodes) || is_empty(sweep.widths) || is_empty(sweep.transfers) ||
      sweep.passes < 1) {
    return operation_error("a sweep needs nodes, widths, transfers and passes from 1 up");
  }
  Sweep work(sweep);
  for (int nodes = sweep.nodes.first; nodes <= sweep.nodes.last; ++nodes) {
    HEADRACE_TRY_ASSIGN(const Topology topology, Topology::make(nodes, sweep.local_ranks));
    for (int width = sweep.widths.first; width <= sweep.widths.last; ++width) {
      work.check_width(topology, width);
    }
  }
  return std::move(work).result();
}

}  // namespace headrace
