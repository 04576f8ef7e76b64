#include "plan/model_spec.h"

#include <fmt/format.h>

#include "base/checked_math.h"
#include "base/digest.h"

namespace headrace {

std::size_t ModelSpec::parameter_count() const {
  std::size_t count = 0;
  for (const GroupSpec& group : groups) {
    count += group.parameters.size();
  }
  return count;
}

std::uint64_t ModelSpec::digest() const {
  Digest digest;
  for (const GroupSpec& group : groups) {
    digest.add(group.name).add_word(group.parameters.size());
    for (const ParameterSpec& parameter : group.parameters) {
      digest.add(parameter.name)
          .add_word(static_cast<std::uint64_t>(parameter.rows))
          .add_word(static_cast<std::uint64_t>(parameter.row_elements))
          .add_word(static_cast<std::uint64_t>(parameter.dtype));
    }
  }
  return digest.value();
}

Status ModelSpec::validate(int world_size) const {
  if (groups.empty()) {
    return operation_error("a model needs at least one parameter group");
  }
  std::int64_t total = 0;
  for (const GroupSpec& group : groups) {
    for (const ParameterSpec& parameter : group.parameters) {
      if (parameter.rows < 0 || parameter.row_elements < 0) {
        return operation_error(fmt::format("parameter {} has a negative shape ({}, {})",
                                           parameter.name, parameter.rows, parameter.row_elements));
      }
      const std::int64_t padded_rows = ceil_div(parameter.rows, world_size) * world_size;
      // 4 bytes an element of all ranks: a slot of fp32 accumulators a source is the largest thing
      // sized from a parameter.
      auto elements = checked_mul(padded_rows, parameter.row_elements);
      auto bytes = elements ? checked_mul(*elements, 4) : elements;
      auto sum = bytes ? checked_add(total, *bytes) : bytes;
      if (!sum) {
        return operation_error(fmt::format("parameter {} of shape ({}, {}): {}", parameter.name,
                                           parameter.rows, parameter.row_elements,
                                           sum.error().message));
      }
      total = *sum;
    }
  }
  return {};
}

}  // namespace headrace
