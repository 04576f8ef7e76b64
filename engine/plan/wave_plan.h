#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "plan/topology.h"

namespace headrace {

/// How a reduce-scatter uses its outbox, the place of node partials on their way to other nodes.
enum class GradientMode : std::uint8_t {
  in_place,    ///< read where autograd left them; a block for every partial that goes out
  slot_reuse,  ///< copied into the vacated landing first; blocks for two consecutive rounds
};

struct WaveOptions {
  int width = 1;      ///< W: contributors a wave, at most L
  int transfers = 1;  ///< k: transfers a round
  int passes = 1;     ///< the sub-slices are cut into so many parts, sent one after the other
};

/// At most k remote contributors of one wave, sent at the same time.
struct Round {
  int first = 0;      ///< contributors [first, first + transfers)
  int transfers = 0;  ///< >= 1

  bool operator==(const Round&) const = default;
};

/// Contributors that are combined at once.
struct Wave {
  int first = 0;  ///< contributors [first, first + contributors)
  int contributors = 0;
  int first_round = 0;  ///< rounds [first_round, first_round + rounds) of the pass
  int rounds = 0;       ///< 0 where the own node is the only contributor

  bool operator==(const Wave&) const = default;
};

/// The order in which the contributors 1 to M of a destination are sent, received and combined. All
/// passes go through the same waves and rounds. Waves are counted over the whole call: wave w of
/// pass p is p * waves + w.
///
/// Post-conditions:
/// - every contributor is in one wave, every remote contributor in one round, both in increasing
///   order; a round stays inside its wave and has at most k transfers;
/// - no two contributors of a wave share a residue of the Latin square;
/// - an inbox of L blocks a generation suffices.
class WavePlan {
 public:
  /// Error for a width outside [1, L] or k or passes below 1, and for a width with which two
  /// contributors of one wave would share a local rank; the divisors of L always work.
  static Result<WavePlan> make(const Topology& topology, WaveOptions options);

  const Topology& topology() const { return topology_; }
  const WaveOptions& options() const { return options_; }
  /// Of one pass.
  const std::vector<Wave>& waves() const { return waves_; }
  const std::vector<Round>& rounds() const { return rounds_; }

  /// Waves of the call.
  int total_waves() const { return static_cast<int>(waves_.size()) * options_.passes; }
  /// Partials that a rank sends in the call.
  int remote_blocks() const { return (topology_.nodes() - 1) * options_.passes; }
  /// Of the inbox: 1 where the call has one wave, else 2, used in turn.
  int generations() const { return total_waves() > 1 ? 2 : 1; }
  int generation(int wave) const { return wave % generations(); }
  /// Blocks of one outbox bank. In place: `remote_blocks`. Slot reuse: the largest number of
  /// transfers in two consecutive rounds, max(k_i + k_(i-1)) <= 2k, so that the partials of the
  /// next round can be summed while those of this one are sent.
  int outbox_blocks(GradientMode mode) const;
  /// Residues whose inbox block no contributor of this wave of the call fills but which may hold
  /// something: to be zeroed before the wave is combined. Those of the wave before in the same
  /// generation; in the first wave of a generation, all that the wave does not fill. On local rank
  /// l residue r is inbox block (l + r) mod L.
  std::vector<int> stale_residues(int wave) const;

 private:
  WavePlan(const Topology& topology, WaveOptions options);

  std::vector<bool> filled_residues(int wave) const;

  Topology topology_;
  WaveOptions options_;
  std::vector<Wave> waves_;
  std::vector<Round> rounds_;
};

const char* to_string(GradientMode mode);

}  // namespace headrace
