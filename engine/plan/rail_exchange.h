#pragma once

#include <cstdint>
#include <vector>

#include "plan/node_reduction.h"
#include "plan/program_builder.h"
#include "plan/reduce_scatter_layout.h"

namespace headrace {

/// Level 2 of a reduce-scatter over M > 1 nodes, one rank's part, and the order of its level 1.
///
/// Read phase, lane `local`: the node's partials for remote nodes, in the order of sending, into
/// the outbox, and for the own node into the spare. With a partial outbox a block is written again
/// once what was in it has been sent.
///
/// Network phase, lane `network`, wave after wave: rounds of puts; what no contributor of the wave
/// fills is zeroed, the own partial copied to the inbox; local ranks tell each other that the wave
/// is whole, and each lands its own rows of it. Lane `complete`: once all of the node have landed a
/// wave, its inbox generation is free for the remote contributors of the wave after the next.
///
/// What needs no wait of its own:
/// - zeros and the own copy find their generation free. In a call's first wave something arrives,
///   which was sent when the whole inbox was free; and that the local ranks found a wave whole says
///   that they had landed the wave before it.
/// - the outbox and the spare of call e are read by the network phase of call e - 2. Where another
///   local rank has landed the last wave of that call, the network phase has got there too. With
///   one rank a node the receiver of the last put says so, if the own copy comes before that put.
class RailExchange {
 public:
  /// Refers to its arguments.
  RailExchange(const ReduceScatterLayout& layout, int rank, ProgramBuilder& builder);

  /// Appends everything up to `sources_consumed` and the last credits; `complete` is left.
  void run();

 private:
  void wait_for_banks();
  /// Sums partials for remote nodes while there are free outbox blocks.
  void read_ahead();
  void read(int partial);
  void read_own(int pass);
  void mark_when_consumed();

  void send(int wave, int contributor);
  void receive(int wave, int contributor);
  void copy_own(int wave);
  void zero_stale(int wave);
  void share(int wave);
  void land(int wave);
  void land(int wave, int sub_slice);
  void give_back(int wave);
  /// To the contributors of the first wave in each generation, for their next call; and, where no
  /// local rank can say so, to the last contributor, that its last partial was there.
  void give_back_all();
  /// To the contributors of wave `next`.
  void give_back(int next, std::vector<std::uint32_t> after);

  /// In lane `complete`. Returns what is still to come before the next operation there.
  std::vector<std::uint32_t> wait_for_landings(int wave);
  /// Partials that the rank sends, in order: by pass, then by contributor.
  int partial(int pass, int contributor) const;
  std::vector<OwnedSum> owned(int contributor, int pass, int destination) const;
  /// Credits that a destination gives in this call before this pass's partial is sent. In all it
  /// gives one a partial; those for the first partial in each generation count for the next call.
  std::uint32_t credits(int pass, int contributor) const;
  int wave_of(int pass, int contributor) const;
  int pass_of(int wave) const { return wave / waves_a_pass(); }
  int waves_a_pass() const { return static_cast<int>(waves_.waves().size()); }
  const Wave& wave_at(int wave) const;
  bool ends_pass(int wave) const { return (wave + 1) % waves_a_pass() == 0; }
  bool is_alone() const { return topology_.local_ranks() == 1; }
  int rail_peer(int node) const { return topology_.rank_of(node, local_); }
  int local_peer(int local) const { return topology_.rank_of(node_, local); }
  /// The other local ranks, from the next one on.
  std::vector<int> others() const;

  const ReduceScatterLayout& layout_;
  const Topology& topology_;
  const WavePlan& waves_;
  const ReduceScatterSignals& signals_;
  const LatinSquare square_;
  ProgramBuilder& builder_;
  NodeReduction reduction_;
  int node_;
  int local_;
  int partials_read_ = 0;
  int partials_sent_ = 0;
  bool consumed_ = false;
  using Positions = std::vector<std::uint32_t>;
  std::vector<Positions> summed_;      ///< by partial
  std::vector<Positions> own_summed_;  ///< by pass
  std::vector<Positions> emptied_;     ///< by outbox block: its last put
  std::vector<Positions> landed_;      ///< by wave
};

}  // namespace headrace
