#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"

namespace headrace {

/// A parameter of shape (rows, row_elements): dimension 0, then all others flattened.
struct ParameterSpec {
  std::string name;
  std::int64_t rows = 0;          ///< D_p >= 0
  std::int64_t row_elements = 0;  ///< K_p >= 0; 1 for a vector
  DType dtype = DType::float32;   ///< in which it travels and is used: the compute dtype

  bool operator==(const ParameterSpec&) const = default;
};

/// Parameters that are gathered and reduced together: one FSDP2 parameter group.
struct GroupSpec {
  std::string name;
  std::vector<ParameterSpec> parameters;

  bool operator==(const GroupSpec&) const = default;
};

struct ModelSpec {
  std::vector<GroupSpec> groups;

  /// Parameters of all groups together.
  std::size_t parameter_count() const;
  /// Tells models apart: names, shapes, dtypes and their order.
  std::uint64_t digest() const;
  /// Error that names the first parameter with a negative or overflowing size, or an empty model.
  Status validate(int world_size) const;

  bool operator==(const ModelSpec&) const = default;
};

}  // namespace headrace
