#include "plan/sizing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/checked_math.h"

namespace headrace {
namespace {

Status validate(const SizingRequest& request, const Calibration& calibration) {
  if (request.output_bytes == 0 || request.width < 1 || request.passes < 1) {
    return operation_error(
        fmt::format("sizing needs output, wave width and passes above 0, not {} "
                    "bytes, {} and {}",
                    request.output_bytes, request.width, request.passes));
  }
  for (const auto& [name, value] : {std::pair{"rail_rate", calibration.rail_rate},
                                    {"sum_rate", calibration.sum_rate},
                                    {"landing_rate", calibration.landing_rate},
                                    {"landing_ceiling", calibration.landing_ceiling},
                                    {"arrival_skew", calibration.arrival_skew},
                                    {"landing_tail", calibration.landing_tail},
                                    {"round_share", calibration.round_share}}) {
    if (!(value > 0)) {
      return operation_error(fmt::format("calibration: {} must be above 0, not {}", name, value));
    }
  }
  if (!(calibration.round_seconds >= 0) || calibration.first_transfers < 1 ||
      calibration.most_transfers < calibration.first_transfers) {
    return operation_error(fmt::format(
        "calibration: needs round_seconds >= 0 and 1 <= first_transfers <= most_transfers, not {}, "
        "{} and {}",
        calibration.round_seconds, calibration.first_transfers, calibration.most_transfers));
  }
  return {};
}

int choose_transfers(int nodes, const SizingRequest& request, const Calibration& calibration,
                     double wire_seconds) {
  int transfers = std::clamp(calibration.first_transfers, 1, std::max(nodes - 1, 1));
  while (transfers < calibration.most_transfers) {
    const int doubled = std::min(2 * transfers, calibration.most_transfers);
    const int rounds = count_rounds(nodes, request.width, transfers);
    const bool wait_too_long =
        rounds * calibration.round_seconds > calibration.round_share * wire_seconds;
    if (!wait_too_long || count_rounds(nodes, request.width, doubled) >= rounds) {
      break;
    }
    transfers = doubled;
  }
  return transfers;
}

}  // namespace

int count_rounds(int nodes, int width, int transfers) {
  const int remote = nodes - 1;
  const int full_waves = remote / width;
  return static_cast<int>(full_waves * ceil_div(width, transfers) +
                          ceil_div(remote % width, transfers));
}

Result<Sizing> size_lockstep(const Topology& topology, const SizingRequest& request,
                             const Calibration& calibration) {
  HEADRACE_TRY(validate(request, calibration));
  const auto output_bytes = static_cast<double>(request.output_bytes);
  Sizing sizing;
  sizing.wire_seconds = (topology.nodes() - 1) * output_bytes / calibration.rail_rate;

  const double bytes_a_sent_byte = topology.local_ranks() *
                                       static_cast<double>(item_size(request.gradient)) /
                                       static_cast<double>(item_size(DType::float32)) +
                                   1;
  sizing.sum_blocks = static_cast<int>(std::ceil(calibration.arrival_skew * bytes_a_sent_byte *
                                                 calibration.rail_rate / calibration.sum_rate));

  double landing_blocks = std::floor(calibration.landing_ceiling / calibration.landing_rate);
  if (sizing.wire_seconds > 0) {
    const double last_wave_rate =
        output_bytes / request.passes / (calibration.landing_tail * sizing.wire_seconds);
    landing_blocks = std::min(landing_blocks, std::ceil(last_wave_rate / calibration.landing_rate));
  }
  sizing.landing_blocks = static_cast<int>(std::max(landing_blocks, 1.0));

  sizing.transfers = choose_transfers(topology.nodes(), request, calibration, sizing.wire_seconds);
  sizing.rounds = count_rounds(topology.nodes(), request.width, sizing.transfers);
  return sizing;
}

}  // namespace headrace
