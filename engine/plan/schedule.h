#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "plan/topology.h"

namespace headrace {

/// The memories that one lockstep call works on. `user` regions belong to the caller and only their
/// own rank touches them; the others lie in the rank's arena at the same offset on every rank.
enum class Region : std::uint8_t {
  shard,     ///< user: this rank's real rows of parameter `index`, in its own dtype
  landing,   ///< user: the unsharded parameter `index`, N blocks
  gradient,  ///< user: the unsharded gradient `index`, its real rows
  output,    ///< user: this rank's packed fp32 rows, block p at `AddressMap::accumulator_offset(p)`
  resident,  ///< arena, one a group: this rank's blocks in the gather dtype, by the published map
  stage,     ///< arena: slots of one published shard each; slot k holds the shard of node n + k
  staging,   ///< arena: gradients that local ranks have pushed here to be summed
  outbox,    ///< arena, two banks: node partials on their way to other nodes
  inbox,     ///< arena: node partials that have come from other nodes
  spare,     ///< arena, two banks: the own node's partial while its inbox block is still in use
};
inline constexpr std::size_t k_regions = 10;

/// `offset` bytes into a region of local rank `local` of this rank's node. `index` is the parameter
/// where the region is one a parameter, else 0. In a region of several banks the offset counts from
/// the bank of the call.
struct Place {
  int local = 0;
  Region region = Region::shard;
  std::uint32_t index = 0;
  std::size_t offset = 0;

  bool operator==(const Place&) const = default;
};

/// Rows of equal length, `pitch` bytes from start to start.
struct Strided {
  Place place;
  std::size_t pitch = 0;
  DType dtype = DType::float32;

  bool operator==(const Strided&) const = default;
};

enum class OpKind : std::uint8_t {
  copy,    ///< sources[0] to destination, converted where the dtypes differ, else bytes as they are
  zero,    ///< the destination
  sum,     ///< all sources to the fp32 destination, added in fp32 in the order of `sources`
  land,    ///< as sum, over the same-offset inbox blocks of all local ranks, to the output; where
           ///< earlier waves have landed, the destination is the first source
  put,     ///< sources[0] of this rank to the same local rank of `peer`'s node: `destination`
  signal,  ///< sets `signal` in the peer's memory to `count`: what this rank did before is there
  credit,  ///< a signal that says: what you gave me has been read, its place is yours again
  wait,    ///< until the peer has raised `signal` in this rank's memory
  mark,    ///< the call has reached `milestone`
};

/// In inline execution the list order is the order; elsewhere a lane is a stream, lanes run side by
/// side, and `after` orders operations of different lanes. A lane of one call follows the same lane
/// of the call before; all-gathers and reduce-scatters have lanes of their own. Nothing else orders
/// two calls of a rank.
enum class Lane : std::uint8_t { ready, local, network, complete };
inline constexpr std::size_t k_lanes = 4;

enum class CollectiveKind : std::uint8_t { all_gather, reduce_scatter };
inline constexpr std::size_t k_collective_kinds = 2;

/// What a caller may wait for. Each may come long before the last; `complete` is the last operation
/// of a program.
enum class Milestone : std::uint8_t {
  parameters_ready,  ///< all-gather: the landing is whole
  shard_read,        ///< all-gather: nobody reads this rank's shard any more
  sources_consumed,  ///< reduce-scatter: the gradients are read
  complete,          ///< this rank has nothing left to do in the call
};
inline constexpr std::size_t k_milestones = 4;

/// Signals are 64-bit counts in the waiter's arena that one peer raises. An identifier is a
/// function of the topology alone, so all calls of a session share them; counts go on from call to
/// call.
using SignalId = std::uint32_t;

struct Op {
  OpKind kind = OpKind::mark;
  Lane lane = Lane::local;
  std::vector<std::uint32_t> after;  ///< earlier operations of this rank, by position

  // copy, zero, sum, land, put
  Strided destination;
  std::vector<Strided> sources;
  std::size_t rows = 0;
  std::size_t elements = 0;  ///< a row
  /// sum, land: the sum is what the call asks for: times alpha, and what the output held before the
  /// call is added where asked. Where the first source is the destination, earlier waves of the
  /// call have been there: it is added as it is, alpha is for the sum of the other sources alone,
  /// and nothing else is added.
  bool finish = false;

  // put, signal, credit, wait
  int peer = -1;  ///< rank
  SignalId signal = 0;
  /// The count is this many above what all earlier calls raised it to. A wait may ask for 0 with
  /// `calls_back` b >= 1: all that was raised before the b-th call before this one ended (1: by all
  /// earlier calls); satisfied from the start where there was no such call.
  std::uint32_t count = 0;
  std::uint32_t calls_back = 0;

  Milestone milestone = Milestone::complete;

  bool operator==(const Op&) const = default;
};

/// What one call raises a signal by in the memory of `rank`, so that both sides go on from the same
/// count.
struct SignalTotal {
  int peer = 0;
  SignalId signal = 0;
  std::uint32_t count = 0;

  bool operator==(const SignalTotal&) const = default;
};

/// One rank's part of one collective call. Positions in `ops` are the common order: a rank that
/// runs them one after the other, as all others do, never waits for ever.
struct RankProgram {
  std::vector<Op> ops;
  std::vector<SignalTotal> raised;   ///< by this rank, at `peer`
  std::vector<SignalTotal> awaited;  ///< at this rank, raised by `peer`

  bool operator==(const RankProgram&) const = default;
};

struct RegionSize {
  std::size_t bytes = 0;  ///< of one bank
  std::size_t banks = 1;

  std::size_t total() const { return bytes * banks; }
  bool operator==(const RegionSize&) const = default;
};

/// A collective as data: run by `collective/execute`, proved by `schedule_check`, priced by the
/// simulator. The program of each rank is computed on its own, so a rank of a large world plans
/// only its own.
struct ScheduleShape {
  std::array<RegionSize, k_regions> regions;  ///< of the arena regions; the same on every rank
  std::size_t signals = 0;                    ///< identifiers in use

  const RegionSize& operator[](Region region) const {
    return regions[static_cast<std::size_t>(region)];
  }
};

/// Operations that move data between memories: copies and puts.
std::size_t descriptors(const RankProgram& program);

const char* to_string(CollectiveKind kind);
const char* to_string(OpKind kind);
const char* to_string(Region region);
const char* to_string(Lane lane);
const char* to_string(Milestone milestone);

}  // namespace headrace
