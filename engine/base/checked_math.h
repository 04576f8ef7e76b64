#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace headrace {

/// Smallest q with q * divisor >= value; divisor > 0.
constexpr std::int64_t ceil_div(std::int64_t value, std::int64_t divisor) {
  return value / divisor + (value % divisor > 0 ? 1 : 0);
}

/// Smallest multiple of `alignment` (a power of two) that is >= value.
constexpr std::size_t round_up(std::size_t value, std::size_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

/// Product and sum of byte and element counts; an error where 63 bits do not hold the result.
inline Result<std::int64_t> checked_mul(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) {
    return operation_error("a size does not fit 63 bits: " + std::to_string(a) + " * " +
                           std::to_string(b));
  }
  return product;
}

inline Result<std::int64_t> checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) {
    return operation_error("a size does not fit 63 bits: " + std::to_string(a) + " + " +
                           std::to_string(b));
  }
  return sum;
}

}  // namespace headrace
