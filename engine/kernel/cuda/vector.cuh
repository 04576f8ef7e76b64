#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernel/tiles.h"

// Loads, stores and conversions of a thread's group of elements.

namespace headrace {

template <unsigned bytes>
struct Vector {
  unsigned words[bytes / sizeof(unsigned)];
};

template <unsigned group>
struct Floats {
  float values[group];
};

template <DType dtype>
constexpr unsigned k_item = static_cast<unsigned>(item_size(dtype));

template <DType dtype, unsigned group>
using Packed = Vector<k_item<dtype> * group>;

/// As wide as the vector allows; the source is read once and need not stay in a cache.
template <unsigned bytes>
__device__ __forceinline__ Vector<bytes> load_vector(std::uintptr_t address) {
  static_assert(bytes == 8 || bytes % 16 == 0);
  Vector<bytes> vector;
  if constexpr (bytes == 8) {
    const uint2 pair = __ldcs(reinterpret_cast<const uint2*>(address));
    vector.words[0] = pair.x;
    vector.words[1] = pair.y;
  } else {
#pragma unroll
    for (unsigned i = 0; i < bytes / 16; ++i) {
      const uint4 quad = __ldcs(reinterpret_cast<const uint4*>(address) + i);
      vector.words[4 * i] = quad.x;
      vector.words[4 * i + 1] = quad.y;
      vector.words[4 * i + 2] = quad.z;
      vector.words[4 * i + 3] = quad.w;
    }
  }
  return vector;
}

template <unsigned bytes>
__device__ __forceinline__ void store_vector(std::uintptr_t address, const Vector<bytes>& vector) {
  static_assert(bytes == 8 || bytes % 16 == 0);
  if constexpr (bytes == 8) {
    *reinterpret_cast<uint2*>(address) = make_uint2(vector.words[0], vector.words[1]);
  } else {
#pragma unroll
    for (unsigned i = 0; i < bytes / 16; ++i) {
      reinterpret_cast<uint4*>(address)[i] =
          make_uint4(vector.words[4 * i], vector.words[4 * i + 1], vector.words[4 * i + 2],
                     vector.words[4 * i + 3]);
    }
  }
}

/// By accesses of `width` bytes, which divides the address.
template <unsigned bytes>
__device__ Vector<bytes> load_vector(std::uintptr_t address, unsigned width) {
  Vector<bytes> vector;
  if (width >= (bytes < 16 ? bytes : 16)) {
    return load_vector<bytes>(address);
  }
  if (width == 8) {
#pragma unroll
    for (unsigned i = 0; i < bytes / 8; ++i) {
      const Vector<8> pair = load_vector<8>(address + 8 * i);
      vector.words[2 * i] = pair.words[0];
      vector.words[2 * i + 1] = pair.words[1];
    }
    return vector;
  }
#pragma unroll
  for (unsigned i = 0; i < bytes / 4; ++i) {
    const std::uintptr_t at = address + 4 * i;
    if (width >= 4) {
      vector.words[i] = *reinterpret_cast<const std::uint32_t*>(at);
    } else if (width == 2) {
      const auto* halves = reinterpret_cast<const std::uint16_t*>(at);
      vector.words[i] = halves[0] | static_cast<unsigned>(halves[1]) << 16;
    } else {
      const auto* parts = reinterpret_cast<const std::uint8_t*>(at);
      vector.words[i] = parts[0] | static_cast<unsigned>(parts[1]) << 8 |
                        static_cast<unsigned>(parts[2]) << 16 |
                        static_cast<unsigned>(parts[3]) << 24;
    }
  }
  return vector;
}

template <unsigned bytes>
__device__ void store_vector(std::uintptr_t address, const Vector<bytes>& vector, unsigned width) {
  if (width >= (bytes < 16 ? bytes : 16)) {
    return store_vector<bytes>(address, vector);
  }
  if (width == 8) {
#pragma unroll
    for (unsigned i = 0; i < bytes / 8; ++i) {
      store_vector(address + 8 * i, Vector<8>{vector.words[2 * i], vector.words[2 * i + 1]});
    }
    return;
  }
#pragma unroll
  for (unsigned i = 0; i < bytes / 4; ++i) {
    const std::uintptr_t at = address + 4 * i;
    const unsigned word = vector.words[i];
    if (width >= 4) {
      *reinterpret_cast<std::uint32_t*>(at) = word;
    } else if (width == 2) {
      auto* halves = reinterpret_cast<std::uint16_t*>(at);
      halves[0] = static_cast<std::uint16_t>(word);
      halves[1] = static_cast<std::uint16_t>(word >> 16);
    } else {
      auto* parts = reinterpret_cast<std::uint8_t*>(at);
      parts[0] = static_cast<std::uint8_t>(word);
      parts[1] = static_cast<std::uint8_t>(word >> 8);
      parts[2] = static_cast<std::uint8_t>(word >> 16);
      parts[3] = static_cast<std::uint8_t>(word >> 24);
    }
  }
}

/// The rule of kernel/element.h.
__device__ __forceinline__ unsigned bfloat16_bits(float value) {
  const unsigned bits = __float_as_uint(value);
  const unsigned rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  return value != value ? (bits >> 16) | 0x40U : rounded;
}

template <DType dtype, unsigned group>
__device__ __forceinline__ Floats<group> unpack(const Packed<dtype, group>& packed) {
  Floats<group> floats;
#pragma unroll
  for (unsigned i = 0; i < group; ++i) {
    if constexpr (dtype == DType::float32) {
      floats.values[i] = __uint_as_float(packed.words[i]);
    } else {
      const unsigned word = packed.words[i / 2];
      floats.values[i] = __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xFFFF0000U);
    }
  }
  return floats;
}

template <DType dtype, unsigned group>
__device__ __forceinline__ Packed<dtype, group> pack(const Floats<group>& floats) {
  Packed<dtype, group> packed;
  if constexpr (dtype == DType::float32) {
#pragma unroll
    for (unsigned i = 0; i < group; ++i) {
      packed.words[i] = __float_as_uint(floats.values[i]);
    }
  } else {
#pragma unroll
    for (unsigned i = 0; i < group / 2; ++i) {
      packed.words[i] =
          bfloat16_bits(floats.values[2 * i]) | bfloat16_bits(floats.values[2 * i + 1]) << 16;
    }
  }
  return packed;
}

template <DType dtype>
__device__ __forceinline__ float load_item(std::uintptr_t address) {
  if constexpr (dtype == DType::float32) {
    return *reinterpret_cast<const float*>(address);
  } else {
    return __uint_as_float(static_cast<unsigned>(*reinterpret_cast<const std::uint16_t*>(address))
                           << 16);
  }
}

template <DType dtype>
__device__ __forceinline__ void store_item(std::uintptr_t address, float value) {
  if constexpr (dtype == DType::float32) {
    *reinterpret_cast<float*>(address) = value;
  } else {
    *reinterpret_cast<std::uint16_t*>(address) = static_cast<std::uint16_t>(bfloat16_bits(value));
  }
}

/// The group at `address`, of which only `part` is there; zeros elsewhere.
template <DType dtype, unsigned group>
__device__ Floats<group> load_part(std::uintptr_t address, unsigned width, Part part) {
  if (part.end - part.begin == group) {
    return unpack<dtype, group>(load_vector<sizeof(Packed<dtype, group>)>(address, width));
  }
  Floats<group> floats;
#pragma unroll
  for (unsigned i = 0; i < group; ++i) {
    const bool there = i >= part.begin && i < part.end;
    floats.values[i] = there ? load_item<dtype>(address + i * k_item<dtype>) : 0.0F;
  }
  return floats;
}

template <DType dtype, unsigned group>
__device__ void store_part(std::uintptr_t address, unsigned width, Part part,
                           const Floats<group>& floats) {
  if (part.end - part.begin == group) {
    return store_vector(address, pack<dtype>(floats), width);
  }
#pragma unroll
  for (unsigned i = 0; i < group; ++i) {
    if (i >= part.begin && i < part.end) {
      store_item<dtype>(address + i * k_item<dtype>, floats.values[i]);
    }
  }
}

/// Each sum rounded once, never fused.
template <unsigned group>
__device__ __forceinline__ Floats<group> plus(const Floats<group>& a, const Floats<group>& b) {
  Floats<group> sum;
#pragma unroll
  for (unsigned i = 0; i < group; ++i) {
    sum.values[i] = __fadd_rn(a.values[i], b.values[i]);
  }
  return sum;
}

template <unsigned group>
__device__ __forceinline__ Floats<group> times(float scale, const Floats<group>& a) {
  Floats<group> product;
#pragma unroll
  for (unsigned i = 0; i < group; ++i) {
    product.values[i] = __fmul_rn(scale, a.values[i]);
  }
  return product;
}

/// scale * a + b, fused.
template <unsigned group>
__device__ __forceinline__ Floats<group> times_plus(float scale, const Floats<group>& a,
                                                    const Floats<group>& b) {
  Floats<group> sum;
#pragma unroll
  for (unsigned i = 0; i < group; ++i) {
    sum.values[i] = __fmaf_rn(scale, a.values[i], b.values[i]);
  }
  return sum;
}

}  // namespace headrace
