#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collective/executor.h"
#include "collective/on_demand.h"
#include "plan/lockstep_plan.h"
#include "runtime/stream.h"
#include "transport/transport.h"

namespace headrace {

/// Where the lanes of lockstep calls run.
struct Lanes {
  /// Streams of the transport, which run beside the caller; lanes share them where they are fewer
  /// than lanes, in the common order. 0: one lane after the other on the calling thread, which only
  /// transports of host memory can do.
  std::size_t streams = 0;
};
inline constexpr std::size_t k_most_lane_streams = k_lanes * k_collective_kinds;

/// Lockstep collectives of one model on one rank. All ranks make the same calls in the same order,
/// one caller at a time. A call begins by telling its neighbours which one it is, so that ranks
/// whose calls differ get an error that names both before any byte moves.
///
/// Programs are made once: those of all-gathers at the start, those of reduce-scatters for each
/// choice of gradient dtypes when it first comes.
class Lockstep {
 public:
  /// Pointers must outlive the object. `limit` is the longest wait of one lane for another.
  static Result<std::unique_ptr<Lockstep>> make(const LockstepPlan* plan, Transport* transport,
                                                int rank, Milliseconds limit, Lanes lanes = {});
  /// Ends after what is under way.
  ~Lockstep();

  const LockstepPlan& plan() const { return *plan_; }
  /// Made so far. In the steady state no call makes another.
  std::size_t programs() const { return gathers_.size() + reductions_.size(); }

  /// Writes every parameter's N * b_p bytes of landing. `shards` are the rank's real rows; not
  /// looked at where the group is adopted, since its shards lie in the arena. They may be written
  /// again when this returns.
  Status all_gather(std::size_t group, std::span<const ShardSource> shards,
                    std::span<void* const> landings);
  /// Begins the same once `after` has happened: the landings are free, and the shards are written.
  /// What the caller gave stays valid until the milestones say that it is no longer needed.
  Result<Milestones> start_all_gather(std::size_t group, std::span<const ShardSource> shards,
                                      std::span<void* const> landings, const Event& after);

  /// Gives every rank what each rank gives, in rank order; k_record_bytes at most.
  Result<std::vector<std::string>> exchange(std::string_view mine);

  /// Writes alpha times the sum over all ranks of this rank's rows of each gradient to `output`,
  /// packed in fp32 by `AddressMap::accumulator_offset`, or adds it with `accumulate`. At most one
  /// gradient a parameter, the same parameters on every rank; of other parameters nothing is
  /// written. Gradients are free when this returns.
  /// `earlier` says whether the caller goes on adding to gradients of earlier calls, by
  /// `accumulate` or by itself; it must agree on every rank.
  Status reduce_scatter(std::size_t group, std::span<const GradientSource> gradients, float* output,
                        float alpha, bool accumulate, bool earlier);
  /// Begins the same once `after` has happened: the gradients are written.
  Result<Milestones> start_reduce_scatter(std::size_t group,
                                          std::span<const GradientSource> gradients, float* output,
                                          float alpha, bool accumulate, bool earlier,
                                          const Event& after);

  /// Calls that move nothing: they tell ranks in different brackets, or with other numbers of calls
  /// in them, from each other.
  Status enter_bracket();
  Status leave_bracket();

 private:
  Lockstep(const LockstepPlan* plan, Transport* transport, int rank, Milliseconds limit,
           std::vector<std::unique_ptr<Stream>> workers);
  LaneStreams lane_streams();

  enum class CallKind : std::uint32_t { all_gather, reduce_scatter, enter_bracket, leave_bracket };

  struct CallDigest {
    std::uint64_t number = 0;
    CallKind kind = CallKind::all_gather;
    std::uint32_t group = 0;
    std::uint64_t gradients = 0;  ///< which parameters have one, and in which dtype
    float alpha = 0;
    std::uint32_t accumulate = 0;
    std::uint32_t earlier = 0;
  };
  static_assert(sizeof(CallDigest) <= LockstepPlan::k_call_digest_bytes);

  /// What a rank in this call is doing.
  std::string doing(const CallDigest& call) const;
  Status begin(CallDigest digest);
  Status compare(int peer, const CallDigest& theirs, const CallDigest& ours) const;
  /// Waits for all that a call began; after a failure for all that is under way, since no lane may
  /// touch the caller's memory once the call has returned.
  Status finish(Result<Milestones> milestones);
  /// Returns once the workers have passed everything.
  void drain();
  Result<const Program*> reduce_program(std::size_t group, const std::vector<DType>& dtypes);

  const LockstepPlan* plan_;
  Transport* transport_;
  int rank_;
  Milliseconds limit_;
  InlineStream stream_;
  std::vector<std::unique_ptr<Stream>> workers_;  ///< shared by the lanes
  Executor executor_;
  std::uint64_t calls_ = 0;
  std::vector<Program> gathers_;  ///< by group
  std::map<std::pair<std::size_t, std::vector<DType>>, Program> reductions_;
  std::string call_;  ///< describes the last call
};

}  // namespace headrace
