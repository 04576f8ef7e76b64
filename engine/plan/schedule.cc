#include "plan/schedule.h"

#include <algorithm>

namespace headrace {

std::size_t descriptors(const RankProgram& program) {
  return static_cast<std::size_t>(std::count_if(
      program.ops.begin(), program.ops.end(),
      [](const Op& op) { return op.kind == OpKind::copy || op.kind == OpKind::put; }));
}

const char* to_string(CollectiveKind kind) {
  return kind == CollectiveKind::all_gather ? "all-gather" : "reduce-scatter";
}

const char* to_string(OpKind kind) {
  switch (kind) {
    case OpKind::copy:
      return "copy";
    case OpKind::zero:
      return "zero";
    case OpKind::sum:
      return "sum";
    case OpKind::land:
      return "land";
    case OpKind::put:
      return "put";
    case OpKind::signal:
      return "signal";
    case OpKind::credit:
      return "credit";
    case OpKind::wait:
      return "wait";
    case OpKind::mark:
      return "mark";
  }
  return "?";
}

const char* to_string(Region region) {
  switch (region) {
    case Region::shard:
      return "shard";
    case Region::landing:
      return "landing";
    case Region::gradient:
      return "gradient";
    case Region::output:
      return "output";
    case Region::resident:
      return "resident";
    case Region::stage:
      return "stage";
    case Region::staging:
      return "staging";
    case Region::outbox:
      return "outbox";
    case Region::inbox:
      return "inbox";
    case Region::spare:
      return "spare";
  }
  return "?";
}

const char* to_string(Lane lane) {
  switch (lane) {
    case Lane::ready:
      return "ready";
    case Lane::local:
      return "local";
    case Lane::network:
      return "network";
    case Lane::complete:
      return "complete";
  }
  return "?";
}

const char* to_string(Milestone milestone) {
  switch (milestone) {
    case Milestone::parameters_ready:
      return "parameters ready";
    case Milestone::shard_read:
      return "shard read";
    case Milestone::sources_consumed:
      return "sources consumed";
    case Milestone::complete:
      return "complete";
  }
  return "?";
}

}  // namespace headrace
