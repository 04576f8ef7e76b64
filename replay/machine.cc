#include "replay/machine.h"

#include <fmt/format.h>

#include <array>

#include "replay/decoder.h"

namespace headrace::replay {
namespace {

constexpr double k_tera = 1e12;
constexpr double k_giga = 1e9;

const std::array<Machine, 4>& machines() {
  static const std::array<Machine, 4> k_machines{{
      {"h200", 400 * k_tera, 360 * k_giga,
       "989 TFLOP/s dense bf16 at 40 %; NVLink of 450 GB/s a direction at 80 %"},
      {"h200-rail", 400 * k_tera, 47.5 * k_giga,
       "989 TFLOP/s dense bf16 at 40 %; one 400 Gb/s link a GPU, 47.5 GB/s sustained"},
      {"a100", 125 * k_tera, 240 * k_giga,
       "312 TFLOP/s dense bf16 at 40 %; NVLink of 300 GB/s a direction at 80 %"},
      {"a100-rail", 125 * k_tera, 23.75 * k_giga,
       "312 TFLOP/s dense bf16 at 40 %; one 200 Gb/s link a GPU, 23.75 GB/s sustained"},
  }};
  return k_machines;
}

}  // namespace

Result<Machine> machine(std::string_view name) {
  std::string known;
  for (const Machine& machine : machines()) {
    if (machine.name == name) {
      return machine;
    }
    known += (known.empty() ? "" : ", ") + machine.name;
  }
  return operation_error(fmt::format("there is no machine '{}'; known are {}", name, known));
}

double link_bytes(const ModelSpec& model, int ranks) {
  const auto item = static_cast<double>(item_size(DType::bfloat16));
  const double all = elements(model);
  const double gathered = 2 * all - elements(model.groups[k_root]);
  return (gathered + all) * item * (ranks - 1) / ranks;
}

double communication_seconds(const Machine& machine, const ModelSpec& model, int ranks) {
  return link_bytes(model, ranks) / machine.bytes_per_second;
}

Result<double> seconds_a_cost(const Machine& machine, const CostModel& cost,
                              const ModelShape& shape) {
  HEADRACE_TRY_ASSIGN(const CostModel operations, CostModel::from_shape(shape));
  const double seconds = operations.sample(k_reference_tokens) / machine.flops;
  return seconds / cost.sample(k_reference_tokens);
}

}  // namespace headrace::replay
