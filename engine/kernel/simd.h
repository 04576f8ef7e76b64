#pragma once

// Vector loads and stores of fp32 and bf16 elements at any address, for the kernels' x86-64
// versions. A function marked HEADRACE_AVX2 or HEADRACE_AVX512 is compiled for that set alone and
// may only run where best_isa() allows it.

#if defined(__x86_64__)
#define HEADRACE_X86 1

#include <immintrin.h>

#include <cstddef>

#include "base/dtype.h"

#define HEADRACE_AVX2 __attribute__((target("avx2,fma")))
#define HEADRACE_AVX512 __attribute__((target("avx512f,avx2,fma")))
#define HEADRACE_INLINE inline __attribute__((always_inline))

namespace headrace {

constexpr std::size_t k_avx2_lanes = 8;
constexpr std::size_t k_avx512_lanes = 16;
// GCC 12 and 13 take the unmasked forms of some AVX-512 intrinsics for uses of uninitialised memory
// (GCC bug 105593); a mask of all lanes compiles to the same instructions.
constexpr __mmask16 k_all_lanes = 0xFFFF;

template <DType dtype>
HEADRACE_AVX2 HEADRACE_INLINE __m256 load_avx2(const void* array, std::size_t index) {
  const auto* address = static_cast<const std::byte*>(array) + index * item_size(dtype);
  if constexpr (dtype == DType::float32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(address));
  } else {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(address));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
}

/// bf16 is rounded as by float_to_bfloat16. The AVX512-BF16 instruction is no substitute: it
/// flushes denormals.
template <DType dtype>
HEADRACE_AVX2 HEADRACE_INLINE void store_avx2(void* array, std::size_t index, __m256 values) {
  auto* address = static_cast<std::byte*>(array) + index * item_size(dtype);
  if constexpr (dtype == DType::float32) {
    _mm256_storeu_ps(reinterpret_cast<float*>(address), values);
  } else {
    const __m256i bits = _mm256_castps_si256(values);
    const __m256i upper = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
    const __m256i words = _mm256_blendv_epi8(rounded, quiet, nan);
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(address),
        _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
  }
}

template <DType dtype>
HEADRACE_AVX512 HEADRACE_INLINE __m512 load_avx512(const void* array, std::size_t index) {
  const auto* address = static_cast<const std::byte*>(array) + index * item_size(dtype);
  if constexpr (dtype == DType::float32) {
    return _mm512_loadu_ps(address);
  } else {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(address));
    return _mm512_castsi512_ps(
        _mm512_maskz_slli_epi32(k_all_lanes, _mm512_maskz_cvtepu16_epi32(k_all_lanes, halves), 16));
  }
}

template <DType dtype>
HEADRACE_AVX512 HEADRACE_INLINE void store_avx512(void* array, std::size_t index, __m512 values) {
  auto* address = static_cast<std::byte*>(array) + index * item_size(dtype);
  if constexpr (dtype == DType::float32) {
    _mm512_storeu_ps(address, values);
  } else {
    const __m512i bits = _mm512_castps_si512(values);
    const __m512i upper = _mm512_maskz_srli_epi32(k_all_lanes, bits, 16);
    const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF));
    const __m512i rounded = _mm512_maskz_srli_epi32(k_all_lanes, _mm512_add_epi32(bits, bias), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
    const __m512i words = _mm512_mask_or_epi32(rounded, nan, upper, _mm512_set1_epi32(0x40));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(address),
                        _mm512_maskz_cvtepi32_epi16(k_all_lanes, words));
  }
}

}  // namespace headrace
#else
#define HEADRACE_X86 0
#endif
