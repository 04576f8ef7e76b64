#include "kernel/sum.h"

#include <algorithm>
#include <cmath>

#include "kernel/copy.h"
#include "kernel/element.h"
#include "kernel/simd.h"

namespace headrace {
namespace {

constexpr std::size_t k_cache_line = 64;

/// What the sources are, known when the loop is compiled: all of one dtype, or each its own.
enum class Kind { float32, bfloat16, mixed };

Kind kind_of(std::span<const Summand> sources) {
  const DType first = sources.front().dtype;
  const bool same = std::all_of(sources.begin(), sources.end(),
                                [first](const Summand& source) { return source.dtype == first; });
  if (!same) {
    return Kind::mixed;
  }
  return first == DType::float32 ? Kind::float32 : Kind::bfloat16;
}

float load_one(const Summand& source, std::size_t index) {
  return source.dtype == DType::float32 ? load_element<DType::float32>(source.values, index)
                                        : load_element<DType::bfloat16>(source.values, index);
}

void sum_scalar(float* destination, std::span<const Summand> sources, std::size_t begin,
                std::size_t end, float scale, bool add) {
  for (std::size_t i = begin; i < end; ++i) {
    float total = load_one(sources[0], i);
    for (std::size_t s = 1; s < sources.size(); ++s) {
      total += load_one(sources[s], i);
    }
    destination[i] = add ? std::fma(scale, total, destination[i]) : scale * total;
  }
}

#if HEADRACE_X86
template <Kind kind>
HEADRACE_AVX2 HEADRACE_INLINE __m256 load_one_avx2(const Summand& source, std::size_t at) {
  if constexpr (kind == Kind::float32) {
    return load_avx2<DType::float32>(source.values, at);
  } else if constexpr (kind == Kind::bfloat16) {
    return load_avx2<DType::bfloat16>(source.values, at);
  } else {
    return source.dtype == DType::float32 ? load_avx2<DType::float32>(source.values, at)
                                          : load_avx2<DType::bfloat16>(source.values, at);
  }
}

template <Kind kind>
HEADRACE_AVX2 void sum_avx2(float* destination, std::span<const Summand> sources, std::size_t count,
                            float scale, bool add, bool stream) {
  const std::size_t head = elements_to_alignment(destination, sizeof(float), k_cache_line, count);
  sum_scalar(destination, sources, 0, head, scale, add);
  const __m256 factor = _mm256_set1_ps(scale);
  std::size_t i = head;
  for (; i + k_avx2_lanes <= count; i += k_avx2_lanes) {
    __m256 total = load_one_avx2<kind>(sources[0], i);
    for (std::size_t s = 1; s < sources.size(); ++s) {
      total = _mm256_add_ps(total, load_one_avx2<kind>(sources[s], i));
    }
    if (add) {
      _mm256_store_ps(destination + i,
                      _mm256_fmadd_ps(factor, total, _mm256_load_ps(destination + i)));
    } else if (stream) {
      _mm256_stream_ps(destination + i, _mm256_mul_ps(factor, total));
    } else {
      _mm256_store_ps(destination + i, _mm256_mul_ps(factor, total));
    }
  }
  if (stream) {
    _mm_sfence();
  }
  sum_scalar(destination, sources, i, count, scale, add);
}

template <Kind kind>
HEADRACE_AVX512 HEADRACE_INLINE __m512 load_one_avx512(const Summand& source, std::size_t at) {
  if constexpr (kind == Kind::float32) {
    return load_avx512<DType::float32>(source.values, at);
  } else if constexpr (kind == Kind::bfloat16) {
    return load_avx512<DType::bfloat16>(source.values, at);
  } else {
    return source.dtype == DType::float32 ? load_avx512<DType::float32>(source.values, at)
                                          : load_avx512<DType::bfloat16>(source.values, at);
  }
}

template <Kind kind>
HEADRACE_AVX512 void sum_avx512(float* destination, std::span<const Summand> sources,
                                std::size_t count, float scale, bool add, bool stream) {
  const std::size_t head = elements_to_alignment(destination, sizeof(float), k_cache_line, count);
  sum_scalar(destination, sources, 0, head, scale, add);
  const __m512 factor = _mm512_set1_ps(scale);
  std::size_t i = head;
  for (; i + k_avx512_lanes <= count; i += k_avx512_lanes) {
    __m512 total = load_one_avx512<kind>(sources[0], i);
    for (std::size_t s = 1; s < sources.size(); ++s) {
      total = _mm512_add_ps(total, load_one_avx512<kind>(sources[s], i));
    }
    if (add) {
      _mm512_store_ps(destination + i,
                      _mm512_fmadd_ps(factor, total, _mm512_load_ps(destination + i)));
    } else if (stream) {
      _mm512_stream_ps(destination + i, _mm512_mul_ps(factor, total));
    } else {
      _mm512_store_ps(destination + i, _mm512_mul_ps(factor, total));
    }
  }
  if (stream) {
    _mm_sfence();
  }
  sum_scalar(destination, sources, i, count, scale, add);
}
#endif

template <Kind kind>
void sum_with(Isa isa, float* destination, std::span<const Summand> sources, std::size_t count,
              float scale, bool add) {
#if HEADRACE_X86
  const bool stream = !add && count * sizeof(float) >= k_streaming_threshold;
  if (isa == Isa::avx512) {
    return sum_avx512<kind>(destination, sources, count, scale, add, stream);
  }
  if (isa == Isa::avx2) {
    return sum_avx2<kind>(destination, sources, count, scale, add, stream);
  }
#endif
  static_cast<void>(isa);
  sum_scalar(destination, sources, 0, count, scale, add);
}

}  // namespace

void sum(float* destination, std::span<const Summand> sources, std::size_t count, float scale,
         bool add, Isa isa) {
  if (sources.empty()) {
    if (!add) {
      std::fill_n(destination, count, 0.0F);
    }
    return;
  }
  switch (kind_of(sources)) {
    case Kind::float32:
      return sum_with<Kind::float32>(isa, destination, sources, count, scale, add);
    case Kind::bfloat16:
      return sum_with<Kind::bfloat16>(isa, destination, sources, count, scale, add);
    case Kind::mixed:
      return sum_with<Kind::mixed>(isa, destination, sources, count, scale, add);
  }
}

}  // namespace headrace
