#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "replay/arms.h"
#include "replay/calibration.h"
#include "replay/decoder.h"
#include "replay/machine.h"
#include "replay/ranks.h"
#include "replay/report.h"

namespace headrace::replay {

/// What is replayed, and how.
struct StudyConfig {
  Decoder decoder;
  /// A minibatch after the other; of more than the steps need the first. Together they are the
  /// batch that verl-native levels before it cuts it into minibatches.
  std::vector<std::int64_t> lengths;
  int ranks = 8;
  int samples_per_rank = 4;
  int steps = 8;
  int warm_up = 1;
  std::int64_t cap = 0;  ///< tokens of a microbatch; 0: the longest sample's
  std::vector<ArmChoice> arms;
  Machine machine;
  /// Communication over compute, whatever the machine's: calibrated, of lockstep, over the mean
  /// compute of the first arm. None: the machine's.
  std::optional<double> communication;
  double model_mib = 32;  ///< of the replayed model, unsharded
  bool on_worker = true;
  bench::Placement placement = bench::Placement::free;
  bench::ProcessLimits limits;
  std::size_t memory_limit = std::size_t{16} << 30;  ///< bytes, all ranks together
};

/// By how much the replay is smaller and slower than the machine.
struct Scales {
  double bytes = 1;  ///< machine's over replay's
  double time = 1;   ///< replay's over machine's
};

struct Study {
  Scales scales;
  Calibration calibration;
  double model_mib = 0;
  double memory_mib = 0;
  double machine_microbatch_ms = 0;  ///< communication of one on the machine, none hidden
  std::int64_t cap = 0;
  std::vector<ArmReport> arms;
};

/// Plans, calibrates, then runs all arms. Errors before any rank starts: too few lengths, what the
/// balancer refuses, too much memory (names the figures).
Result<Study> run_study(const StudyConfig& config);

}  // namespace headrace::replay
