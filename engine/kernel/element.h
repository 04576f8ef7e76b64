#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"

namespace headrace {

constexpr float bfloat16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Rounds to nearest, ties to even, denormals and infinities included. A NaN becomes quiet and
/// keeps its sign and the upper bits of its payload.
constexpr std::uint16_t float_to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) {
    return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  }
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

/// Element `index` of an array of `dtype` that may start at any address.
template <DType dtype>
inline float load_element(const void* array, std::size_t index) {
  const auto* address = static_cast<const std::byte*>(array) + index * item_size(dtype);
  if constexpr (dtype == DType::float32) {
    float value;
    std::memcpy(&value, address, sizeof(value));
    return value;
  } else {
    std::uint16_t bits;
    std::memcpy(&bits, address, sizeof(bits));
    return bfloat16_to_float(bits);
  }
}

template <DType dtype>
inline void store_element(void* array, std::size_t index, float value) {
  auto* address = static_cast<std::byte*>(array) + index * item_size(dtype);
  if constexpr (dtype == DType::float32) {
    std::memcpy(address, &value, sizeof(value));
  } else {
    const std::uint16_t bits = float_to_bfloat16(value);
    std::memcpy(address, &bits, sizeof(bits));
  }
}

/// Elements of `item` bytes before the first one at a multiple of `alignment`, `count` at most; 0
/// if none lies there, since then no number of elements helps.
inline std::size_t elements_to_alignment(const void* array, std::size_t item, std::size_t alignment,
                                         std::size_t count) {
  const std::size_t past = reinterpret_cast<std::uintptr_t>(array) % alignment;
  const std::size_t bytes = past == 0 ? 0 : alignment - past;
  return bytes % item == 0 ? std::min(bytes / item, count) : 0;
}

}  // namespace headrace
