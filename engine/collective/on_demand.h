#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "plan/on_demand_plan.h"
#include "runtime/stream.h"
#include "transport/transport.h"

namespace headrace {

/// What every on-demand operation works on. References must outlive the call; a stream must not
/// outlive them.
struct OnDemand {
  const OnDemandPlan& plan;
  Transport& transport;
  Stream& stream;   ///< of the transport's kind: carries parameters and gradients
  Stream& control;  ///< of the host: carries digests and records, and waits for peers; may be
                    ///< `stream`
  int rank;
  Milliseconds drain_limit;  ///< longest wait for this rank's own stream
};

/// Returns once both streams have passed everything enqueued so far.
Status drain(const OnDemand& on_demand);

enum class BracketKind : std::uint64_t { minibatch = 0, evaluation = 1 };
const char* to_string(BracketKind kind);

/// What all ranks must agree on for one epoch; lies in a digest slot of every peer as it is here.
struct BracketDigest {
  std::uint64_t epoch = 0;
  BracketKind kind = BracketKind::minibatch;
  bool in_step = false;    ///< its parameters and gradients travel in lockstep
  double weight = 0;       ///< the global tokens or samples given on entry; 0 where none were
  std::uint64_t plan = 0;  ///< of the balancer's plan; 0 where none was given
  std::uint64_t model = 0;

  bool operator==(const BracketDigest&) const = default;
};
static_assert(sizeof(BracketDigest) <= OnDemandPlan::k_digest_bytes);

/// Where an owner's real rows of one parameter lie, contiguous. A null address keeps what was
/// published last.
struct ShardSource {
  const void* address = nullptr;
  DType dtype = DType::float32;
};

/// One unsharded contiguous gradient of `parameter` (its place in the group).
struct GradientSource {
  std::size_t parameter = 0;
  const void* address = nullptr;
  DType dtype = DType::float32;
};

/// The error that names the first property in which an owner's digest differs from ours; success
/// where none does.
Status compare_digests(int owner, const BracketDigest& theirs, const BracketDigest& ours);

}  // namespace headrace
