#include "kernel/accumulate.h"

#include <cmath>

#include "kernel/element.h"
#include "kernel/simd.h"

namespace headrace {
namespace {

constexpr std::size_t k_cache_line = 64;

template <DType source_dtype>
void accumulate_scalar(float* destination, const void* source, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    const float sum = load_element<DType::float32>(destination, i) +  //
                      load_element<source_dtype>(source, i);
    store_element<DType::float32>(destination, i, sum);
  }
}

template <DType dtype, bool add>
void write_scaled_scalar(void* destination, const float* source, float scale, std::size_t begin,
                         std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    const float value = load_element<DType::float32>(source, i);
    if constexpr (add) {
      const float before = load_element<dtype>(destination, i);
      store_element<dtype>(destination, i, std::fma(scale, value, before));
    } else {
      store_element<dtype>(destination, i, scale * value);
    }
  }
}

#if HEADRACE_X86
// Vectors an iteration. Prefetching, for reading or for writing, was measured and is slower.
constexpr std::size_t k_unroll = 4;

template <DType source_dtype>
HEADRACE_AVX2 void accumulate_avx2(float* destination, const void* source, std::size_t count) {
  const std::size_t head = elements_to_alignment(destination, sizeof(float), k_cache_line, count);
  accumulate_scalar<source_dtype>(destination, source, 0, head);
  std::size_t i = head;
  constexpr std::size_t k_step = k_unroll * k_avx2_lanes;
  for (; i + k_step <= count; i += k_step) {
    for (std::size_t j = 0; j < k_unroll; ++j) {
      const std::size_t at = i + j * k_avx2_lanes;
      const __m256 sum = _mm256_add_ps(load_avx2<DType::float32>(destination, at),
                                       load_avx2<source_dtype>(source, at));
      store_avx2<DType::float32>(destination, at, sum);
    }
  }
  accumulate_scalar<source_dtype>(destination, source, i, count);
}

template <DType source_dtype>
HEADRACE_AVX512 void accumulate_avx512(float* destination, const void* source, std::size_t count) {
  const std::size_t head = elements_to_alignment(destination, sizeof(float), k_cache_line, count);
  accumulate_scalar<source_dtype>(destination, source, 0, head);
  std::size_t i = head;
  constexpr std::size_t k_step = k_unroll * k_avx512_lanes;
  for (; i + k_step <= count; i += k_step) {
    for (std::size_t j = 0; j < k_unroll; ++j) {
      const std::size_t at = i + j * k_avx512_lanes;
      const __m512 sum = _mm512_add_ps(load_avx512<DType::float32>(destination, at),
                                       load_avx512<source_dtype>(source, at));
      store_avx512<DType::float32>(destination, at, sum);
    }
  }
  accumulate_scalar<source_dtype>(destination, source, i, count);
}

template <DType dtype, bool add>
HEADRACE_AVX2 void write_scaled_avx2(void* destination, const float* source, float scale,
                                     std::size_t count) {
  const std::size_t head =
      elements_to_alignment(destination, item_size(dtype), k_cache_line, count);
  write_scaled_scalar<dtype, add>(destination, source, scale, 0, head);
  const __m256 factor = _mm256_set1_ps(scale);
  std::size_t i = head;
  for (; i + k_avx2_lanes <= count; i += k_avx2_lanes) {
    const __m256 value = load_avx2<DType::float32>(source, i);
    if constexpr (add) {
      store_avx2<dtype>(destination, i,
                        _mm256_fmadd_ps(factor, value, load_avx2<dtype>(destination, i)));
    } else {
      store_avx2<dtype>(destination, i, _mm256_mul_ps(factor, value));
    }
  }
  write_scaled_scalar<dtype, add>(destination, source, scale, i, count);
}

template <DType dtype, bool add>
HEADRACE_AVX512 void write_scaled_avx512(void* destination, const float* source, float scale,
                                         std::size_t count) {
  const std::size_t head =
      elements_to_alignment(destination, item_size(dtype), k_cache_line, count);
  write_scaled_scalar<dtype, add>(destination, source, scale, 0, head);
  const __m512 factor = _mm512_set1_ps(scale);
  std::size_t i = head;
  for (; i + k_avx512_lanes <= count; i += k_avx512_lanes) {
    const __m512 value = load_avx512<DType::float32>(source, i);
    if constexpr (add) {
      store_avx512<dtype>(destination, i,
                          _mm512_fmadd_ps(factor, value, load_avx512<dtype>(destination, i)));
    } else {
      store_avx512<dtype>(destination, i, _mm512_mul_ps(factor, value));
    }
  }
  write_scaled_scalar<dtype, add>(destination, source, scale, i, count);
}
#endif

template <DType source_dtype>
void accumulate_with(Isa isa, float* destination, const void* source, std::size_t count) {
#if HEADRACE_X86
  if (isa == Isa::avx512) {
    return accumulate_avx512<source_dtype>(destination, source, count);
  }
  if (isa == Isa::avx2) {
    return accumulate_avx2<source_dtype>(destination, source, count);
  }
#endif
  static_cast<void>(isa);
  accumulate_scalar<source_dtype>(destination, source, 0, count);
}

template <DType dtype, bool add>
void write_scaled_with(Isa isa, void* destination, const float* source, float scale,
                       std::size_t count) {
#if HEADRACE_X86
  if (isa == Isa::avx512) {
    return write_scaled_avx512<dtype, add>(destination, source, scale, count);
  }
  if (isa == Isa::avx2) {
    return write_scaled_avx2<dtype, add>(destination, source, scale, count);
  }
#endif
  static_cast<void>(isa);
  write_scaled_scalar<dtype, add>(destination, source, scale, 0, count);
}

}  // namespace

void accumulate(float* destination, const void* source, DType source_dtype, std::size_t count,
                Isa isa) {
  switch (source_dtype) {
    case DType::float32:
      return accumulate_with<DType::float32>(isa, destination, source, count);
    case DType::bfloat16:
      return accumulate_with<DType::bfloat16>(isa, destination, source, count);
  }
}

void write_scaled(void* destination, DType dtype, const float* source, float scale,
                  std::size_t count, bool add, Isa isa) {
  switch (dtype) {
    case DType::float32:
      return add ? write_scaled_with<DType::float32, true>(isa, destination, source, scale, count)
                 : write_scaled_with<DType::float32, false>(isa, destination, source, scale, count);
    case DType::bfloat16:
      return add ? write_scaled_with<DType::bfloat16, true>(isa, destination, source, scale, count)
                 : write_scaled_with<DType::bfloat16, false>(isa, destination, source, scale,
                                                             count);
  }
}

}  // namespace headrace
