#include "support/schedule_mutants.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/program_check.h"

namespace headrace {
namespace {

/// Further back than any test calls.
constexpr std::uint32_t k_never = 1000;

bool is_data(const Op& op) { return op.kind <= OpKind::put && op.rows > 0 && op.elements > 0; }
bool raises(const Op& op) { return op.kind == OpKind::signal || op.kind == OpKind::credit; }
bool lands(const Op& op) {
  return is_data(op) && (op.destination.place.region == Region::landing ||
                         op.destination.place.region == Region::output);
}

/// Without the operation; what came after it comes after its predecessor in the lane.
void erase(RankProgram& program, std::size_t position) {
  std::optional<std::uint32_t> before;
  for (std::size_t at = 0; at < position; ++at) {
    if (program.ops[at].lane == program.ops[position].lane) {
      before = static_cast<std::uint32_t>(at);
    }
  }
  program.ops.erase(program.ops.begin() + static_cast<std::ptrdiff_t>(position));
  for (Op& op : program.ops) {
    std::vector<std::uint32_t> after;
    for (const std::uint32_t target : op.after) {
      if (target == position && before) {
        after.push_back(*before);
      } else if (target != position) {
        after.push_back(target - (target > position ? 1 : 0));
      }
    }
    op.after = std::move(after);
  }
}

void insert(RankProgram& program, std::size_t position, Op op) {
  for (Op& other : program.ops) {
    for (std::uint32_t& target : other.after) {
      target += target >= position ? 1 : 0;
    }
  }
  program.ops.insert(program.ops.begin() + static_cast<std::ptrdiff_t>(position), std::move(op));
}

/// To where it comes right after `earliest` operations, waiting for nothing but its lane.
bool move_forward(RankProgram& program, std::size_t position, std::size_t earliest) {
  Op op = program.ops[position];
  if (earliest >= position) {
    return false;
  }
  op.after.clear();
  erase(program, position);
  insert(program, earliest, std::move(op));
  return true;
}

/// Later raises of the signal come to one less.
bool lose_credit(RankProgram& program, std::size_t position) {
  const Op lost = program.ops[position];
  erase(program, position);
  for (std::size_t at = position; at < program.ops.size(); ++at) {
    Op& op = program.ops[at];
    if (raises(op) && op.peer == lost.peer && op.signal == lost.signal) {
      --op.count;
    }
  }
  return true;
}

/// To right after the signal's previous raise, if anything but other raises is passed.
bool reorder_signal(RankProgram& program, std::size_t position) {
  const Op& op = program.ops[position];
  std::size_t earliest = position;
  bool passes = !op.after.empty();
  while (earliest > 0) {
    const Op& before = program.ops[earliest - 1];
    if (raises(before) && before.peer == op.peer && before.signal == op.signal) {
      break;
    }
    passes = passes || (!raises(before) && before.lane == op.lane);
    --earliest;
  }
  return passes && move_forward(program, position, earliest);
}

/// Before the last operation that moves data in front of it.
bool premature_milestone(RankProgram& program, std::size_t position) {
  for (std::size_t at = position; at-- > 0;) {
    const Op& op = program.ops[at];
    const Milestone milestone = program.ops[position].milestone;
    const bool matters =
        milestone == Milestone::parameters_ready
            ? lands(op)
            : is_data(op) && std::any_of(op.sources.begin(), op.sources.end(), [&](auto& source) {
                const Region region = source.place.region;
                return region == Region::gradient ||
                       (milestone == Milestone::shard_read &&
                        (region == Region::shard || region == Region::resident));
              });
    if (matters) {
      return move_forward(program, position, at);
    }
  }
  return false;
}

bool apply(RankProgram& program, Fault fault, std::size_t position) {
  Op& op = program.ops[position];
  switch (fault) {
    case Fault::dropped_wait:
      if (op.kind != OpKind::wait || op.count == 0) {
        return false;
      }
      op.count = 0;
      op.calls_back = k_never;
      return true;
    case Fault::early_stage_reuse:
      if (op.kind != OpKind::wait || op.calls_back == 0) {
        return false;
      }
      ++op.calls_back;
      return true;
    case Fault::dropped_credit:
      return op.kind == OpKind::credit && lose_credit(program, position);
    case Fault::early_slot_reuse:
      return op.kind == OpKind::mark && op.milestone != Milestone::complete &&
             premature_milestone(program, position);
    case Fault::stale_block:
      if (!is_data(op) || lands(op)) {
        return false;
      }
      erase(program, position);
      return true;
    case Fault::double_landing:
      if (!lands(op)) {
        return false;
      }
      insert(program, position, Op(op));
      return true;
    case Fault::missing_contributor:
      if (is_data(op) && op.sources.size() > 1) {
        op.sources.erase(op.sources.begin());
        return true;
      }
      if (lands(op)) {
        erase(program, position);
        return true;
      }
      return false;
    case Fault::reordered_signal:
      return raises(op) && reorder_signal(program, position);
    case Fault::wrong_generation:
      if (op.kind == OpKind::wait && op.count > 1) {
        --op.count;
        return true;
      }
      if (raises(op) || (op.kind == OpKind::wait && op.count > 0)) {
        op.count += raises(op) ? 1 : k_never;
        return true;
      }
      return false;
    case Fault::misplaced_block:
      if (!is_data(op)) {
        return false;
      }
      op.destination.place.offset += op.elements * item_size(op.destination.dtype);
      return true;
    case Fault::dropped_order:
      if (op.after.empty()) {
        return false;
      }
      op.after.clear();
      return true;
  }
  return false;
}

}  // namespace

const char* to_string(Fault fault) {
  switch (fault) {
    case Fault::dropped_wait:
      return "dropped wait";
    case Fault::dropped_credit:
      return "dropped credit";
    case Fault::early_stage_reuse:
      return "early stage reuse";
    case Fault::early_slot_reuse:
      return "early slot reuse";
    case Fault::stale_block:
      return "stale block";
    case Fault::double_landing:
      return "double landing";
    case Fault::missing_contributor:
      return "missing contributor";
    case Fault::reordered_signal:
      return "reordered signal";
    case Fault::wrong_generation:
      return "wrong generation";
    case Fault::misplaced_block:
      return "misplaced block";
    case Fault::dropped_order:
      return "dropped order";
  }
  return "?";
}

std::optional<Collective> broken_at(const Collective& collective, Fault fault, int rank,
                                    std::size_t position) {
  std::optional<Collective> broken(collective);
  if (!apply(broken->programs[static_cast<std::size_t>(rank)], fault, position)) {
    broken.reset();
  }
  return broken;
}

std::string Mutant::name() const {
  return fmt::format("{} at {} of rank {}", to_string(fault), position, rank);
}

void for_each_mutant(const Collective& collective, Fault fault,
                     const std::function<bool(const Op&)>& exempt,
                     const std::function<void(const Mutant&)>& visit) {
  for (std::size_t rank = 0; rank < collective.programs.size(); ++rank) {
    const std::vector<Op>& ops = collective.programs[rank].ops;
    for (std::size_t position = 0; position < ops.size(); ++position) {
      if (exempt(ops[position])) {
        continue;
      }
      if (auto broken = broken_at(collective, fault, static_cast<int>(rank), position)) {
        visit({fault, static_cast<int>(rank), position, std::move(*broken)});
      }
    }
  }
}

}  // namespace headrace
