#include "collective/on_demand.h"

#include <fmt/format.h>

namespace headrace {

Status drain(const OnDemand& on_demand) {
  for (Stream* stream : {&on_demand.control, &on_demand.stream}) {
    HEADRACE_TRY_ASSIGN(Event event, stream->record());
    HEADRACE_TRY(event.wait(Deadline(on_demand.drain_limit)));
  }
  return {};
}

const char* to_string(BracketKind kind) {
  return kind == BracketKind::minibatch ? "minibatch" : "evaluation";
}

Status compare_digests(int owner, const BracketDigest& theirs, const BracketDigest& ours) {
  const auto differs = [owner](std::string what) {
    return Error{.scope = Scope::session, .message = std::move(what), .rank = owner};
  };
  if (theirs == ours) {
    return {};
  }
  if (theirs.epoch != ours.epoch) {
    return differs(fmt::format("rank {} is in epoch {} where this rank is in {}", owner,
                               theirs.epoch, ours.epoch));
  }
  if (theirs.kind != ours.kind) {
    return differs(fmt::format(
        "rank {} entered epoch {} as {}() where this rank entered {}(); all ranks must enter "
        "the same brackets in the same order",
        owner, ours.epoch, to_string(theirs.kind), to_string(ours.kind)));
  }
  if (theirs.in_step != ours.in_step) {
    const auto way = [](const BracketDigest& digest) {
      return digest.in_step ? "in lockstep" : "on demand";
    };
    return differs(fmt::format(
        "rank {} runs epoch {} {} where this rank runs it {}; ranks must choose a bracket's mode "
        "from what is the same on all of them",
        owner, ours.epoch, way(theirs), way(ours)));
  }
  if (theirs.weight != ours.weight) {
    return differs(fmt::format(
        "rank {} gave minibatch() a global count of {} where this rank gave {}; the count is of "
        "the whole minibatch, not of one rank's part",
        owner, theirs.weight, ours.weight));
  }
  if (theirs.plan != ours.plan) {
    return differs(fmt::format(
        "rank {} trains by another plan (digest {:016x}) than this rank ({:016x}); ranks must "
        "plan from the same lengths, seed and options",
        owner, theirs.plan, ours.plan));
  }
  return differs(fmt::format("rank {} has another model (digest {:016x}) than this rank ({:016x})",
                             owner, theirs.model, ours.model));
}

}  // namespace headrace
