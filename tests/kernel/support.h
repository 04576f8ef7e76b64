#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "kernel/isa.h"

namespace headrace::testing {

/// Every instruction set that this machine can run, the scalar reference first.
inline std::vector<Isa> available_isas() {
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512}) {
    if (isa <= best_isa()) {
      isas.push_back(isa);
    }
  }
  return isas;
}

/// `bytes` bytes that start `offset` bytes past a multiple of 64, between two runs of guard bytes.
class GuardedBytes {
 public:
  GuardedBytes(std::size_t bytes, std::size_t offset)
      : bytes_(bytes), storage_(bytes + 4 * k_line + k_line, k_guard) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    begin_ = (k_line - address % k_line) % k_line + 2 * k_line + offset % k_line;
  }

  std::byte* data() { return storage_.data() + begin_; }
  const std::byte* data() const { return storage_.data() + begin_; }
  std::size_t size() const { return bytes_; }
  bool guards_intact() const {
    const auto is_guard = [](std::byte byte) { return byte == k_guard; };
    const auto begin = storage_.begin() + static_cast<std::ptrdiff_t>(begin_);
    const auto end = begin + static_cast<std::ptrdiff_t>(bytes_);
    return std::all_of(storage_.begin(), begin, is_guard) &&
           std::all_of(end, storage_.end(), is_guard);
  }

 private:
  static constexpr std::size_t k_line = 64;
  static constexpr std::byte k_guard{0xA5};
  std::size_t bytes_;
  std::vector<std::byte> storage_;
  std::size_t begin_ = 0;
};

/// Numbers that break careless kernels: signed zeros, denormals, ties, the ends of the range,
/// infinities, NaNs.
inline std::vector<float> special_floats() {
  std::vector<float> values;
  for (const std::uint32_t bits :
       {0x00000000U, 0x00000001U, 0x00007FFFU, 0x00008000U, 0x00008001U, 0x00018000U,
        0x007FFFFFU, 0x00800000U, 0x3F800000U, 0x3F808000U, 0x3F808001U, 0x3F818000U,
        0x7F7F0000U, 0x7F7F7FFFU, 0x7F7F8000U, 0x7F7FFFFFU, 0x7F800000U, 0x7F800001U,
        0x7F80FFFFU, 0x7FC00000U, 0x7FFFFFFFU}) {
    values.push_back(std::bit_cast<float>(bits));
    values.push_back(std::bit_cast<float>(bits | 0x80000000U));
  }
  return values;
}

/// Fills `bytes` bytes at any address with special values and random numbers of many magnitudes,
/// the same ones for a seed.
inline void fill(std::byte* array, std::size_t bytes, DType dtype, std::uint32_t seed) {
  std::mt19937 random(seed);
  const std::vector<float> special = special_floats();
  for (std::size_t at = 0; at + item_size(dtype) <= bytes; at += item_size(dtype)) {
    float value =
        std::ldexp(static_cast<float>(random()) - 0x1p31F, static_cast<int>(random() % 40U) - 50);
    if (random() % 8 == 0) {
      value = special[random() % special.size()];
    }
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto upper = static_cast<std::uint16_t>(bits >> 16);
    if (dtype == DType::float32) {
      std::memcpy(array + at, &bits, sizeof(bits));
    } else {
      std::memcpy(array + at, &upper, sizeof(upper));
    }
  }
}

inline void fill(GuardedBytes& array, DType dtype, std::uint32_t seed) {
  fill(array.data(), array.size(), dtype, seed);
}

/// Element `index` of an array of `dtype`, as the float it stands for.
inline float element(const GuardedBytes& array, DType dtype, std::size_t index) {
  std::uint32_t bits = 0;
  if (dtype == DType::float32) {
    std::memcpy(&bits, array.data() + 4 * index, 4);
  } else {
    std::uint16_t upper = 0;
    std::memcpy(&upper, array.data() + 2 * index, 2);
    bits = static_cast<std::uint32_t>(upper) << 16;
  }
  return std::bit_cast<float>(bits);
}

/// The same bits, or a NaN for a NaN: which payload an addition of two NaNs keeps is the machine's
/// choice.
inline bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

/// The bf16 number nearest to `value`, ties to the even one, found by comparing exact distances to
/// its two neighbours.
inline float nearest_bfloat16(float value) {
  if (std::isnan(value) || std::isinf(value)) {
    return value;
  }
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t toward_zero = bits & 0xFFFF0000U;
  const std::uint32_t away = toward_zero + 0x10000U;
  const auto magnitude = [](std::uint32_t pattern) {
    const double exact = std::bit_cast<float>(pattern & 0x7FFFFFFFU);
    return std::isinf(exact) ? 0x1p128 : exact;
  };
  const double below = std::fabs(static_cast<double>(value)) - magnitude(toward_zero);
  const double above = magnitude(away) - std::fabs(static_cast<double>(value));
  const bool even = (toward_zero & 0x10000U) == 0;
  const bool down = below < above || (below == above && even);
  return std::bit_cast<float>(down ? toward_zero : away);
}

/// Counts around every vector width and unrolled step, and a few that span several of them.
inline std::vector<std::size_t> awkward_counts() {
  std::vector<std::size_t> counts;
  for (std::size_t count = 0; count <= 70; ++count) {
    counts.push_back(count);
  }
  for (const std::size_t count : {127U, 128U, 129U, 255U, 257U, 1000U, 4099U}) {
    counts.push_back(count);
  }
  return counts;
}

inline constexpr std::array k_offsets = {0, 1, 2, 4, 6, 28, 32, 60, 63};

}  // namespace headrace::testing
