#include "plan/shard_layout.h"

#include <algorithm>

#include "base/checked_math.h"

namespace headrace {

ShardLayout::ShardLayout(const ParameterSpec& parameter, int world_size)
    : rows_(parameter.rows),
      row_elements_(parameter.row_elements),
      padded_rows_(ceil_div(parameter.rows, world_size)) {}

RowRange ShardLayout::rows(int rank) const {
  const std::int64_t begin = std::min(rows_, rank * padded_rows_);
  return {begin, std::min(rows_, begin + padded_rows_)};
}

}  // namespace headrace
