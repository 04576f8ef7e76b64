#include "plan/sub_slice.h"

#include <algorithm>

#include "base/checked_math.h"

namespace headrace {
namespace {

constexpr std::size_t k_vector_elements = 16 / sizeof(float);

std::size_t share(std::size_t elements, int shares) {
  const std::int64_t each = ceil_div(static_cast<std::int64_t>(elements), shares);
  return round_up(static_cast<std::size_t>(each), k_vector_elements);
}

}  // namespace

SubSlices::SubSlices(std::size_t packed_elements, int local_ranks, int passes)
    : elements_(packed_elements),
      capacity_(share(packed_elements, local_ranks)),
      part_capacity_(share(capacity_, passes)) {}

Stretch SubSlices::part(int sub_slice, int pass) const {
  const std::size_t first = static_cast<std::size_t>(sub_slice) * capacity_;
  const std::size_t end = std::min(first + capacity_, elements_);
  const std::size_t begin = first + static_cast<std::size_t>(pass) * part_capacity_;
  if (begin >= end) {
    return {};
  }
  return {.begin = begin, .end = std::min(begin + part_capacity_, end)};
}

}  // namespace headrace
