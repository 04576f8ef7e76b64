#pragma once

#include <string>
#include <string_view>

#include "balance/cost_model.h"
#include "base/result.h"
#include "plan/model_spec.h"

namespace headrace::replay {

/// What is emulated: how fast one of its accelerators trains, and how fast the links around it are
/// when all ranks use them at once.
struct Machine {
  std::string name;
  double flops = 0;             ///< a second, achieved in training
  double bytes_per_second = 0;  ///< into one rank in a gather, out of it in a reduction
  std::string source;           ///< where the two numbers come from
};

/// "h200", "h200-rail", "a100" or "a100-rail".
Result<Machine> machine(std::string_view name);

/// Bytes in bf16 that cross one rank's link in one microbatch: every layer gathered twice and the
/// root once, everything reduced once, each but for the rank's own part.
double link_bytes(const ModelSpec& model, int ranks);

/// Seconds of communication of one microbatch of this model, none hidden.
double communication_seconds(const Machine& machine, const ModelSpec& model, int ranks);

/// Seconds that one unit of the cost model is: floating-point operations where it is made from the
/// shape; a fit in a unit of its own is scaled to take as long as the shape's operations on a
/// sample of k_reference_tokens.
Result<double> seconds_a_cost(const Machine& machine, const CostModel& cost,
                              const ModelShape& shape);
inline constexpr std::int64_t k_reference_tokens = 32'000;

}  // namespace headrace::replay
