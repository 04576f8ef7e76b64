#pragma once

#include <cstdint>

#include "plan/model_spec.h"

namespace headrace {

/// Rows [begin, end) of a parameter.
struct RowRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t count() const { return end - begin; }
  bool operator==(const RowRange&) const = default;
};

/// How dimension 0 of one parameter is dealt over the ranks: FSDP2's rule, which is torch.chunk's.
/// Post-conditions: the ranges of all ranks are disjoint, ascending and cover [0, D_p); all but the
/// last non-empty one hold exactly `padded_rows`.
class ShardLayout {
 public:
  ShardLayout(const ParameterSpec& parameter, int world_size);

  /// R_p = ceil(D_p / N): rows a rank, pad rows included.
  std::int64_t padded_rows() const { return padded_rows_; }
  /// Real rows of a rank; empty where they all lie past D_p.
  RowRange rows(int rank) const;
  /// Elements of a rank's real rows, and of its block with pad rows.
  std::int64_t elements(int rank) const { return rows(rank).count() * row_elements_; }
  std::int64_t padded_elements() const { return padded_rows_ * row_elements_; }

 private:
  std::int64_t rows_;
  std::int64_t row_elements_;
  std::int64_t padded_rows_;
};

}  // namespace headrace
