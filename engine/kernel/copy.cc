#include "kernel/copy.h"

#include <cstring>

#include "kernel/element.h"
#include "kernel/simd.h"

namespace headrace {
namespace {

#if HEADRACE_X86
constexpr std::size_t k_cache_line = 64;

// Both copy whole blocks of 256 bytes to a destination aligned to a cache line, and return the
// bytes copied.
constexpr std::size_t k_block = 4 * k_cache_line;

HEADRACE_AVX2 std::size_t stream_avx2(std::byte* destination, const std::byte* source,
                                      std::size_t bytes) {
  std::size_t done = 0;
  for (; done + k_block <= bytes; done += k_block) {
    const auto* from = reinterpret_cast<const __m256i*>(source + done);
    auto* to = reinterpret_cast<__m256i*>(destination + done);
    for (std::size_t j = 0; j < k_block / sizeof(__m256i); ++j) {
      _mm256_stream_si256(to + j, _mm256_loadu_si256(from + j));
    }
  }
  return done;
}

HEADRACE_AVX512 std::size_t stream_avx512(std::byte* destination, const std::byte* source,
                                          std::size_t bytes) {
  std::size_t done = 0;
  for (; done + k_block <= bytes; done += k_block) {
    for (std::size_t j = 0; j < k_block; j += sizeof(__m512i)) {
      const __m512i line = _mm512_loadu_si512(source + done + j);
      _mm512_stream_si512(reinterpret_cast<__m512i*>(destination + done + j), line);
    }
  }
  return done;
}

void copy_past_caches(std::byte* destination, const std::byte* source, std::size_t bytes, Isa isa) {
  const std::size_t head = elements_to_alignment(destination, 1, k_cache_line, bytes);
  std::memcpy(destination, source, head);
  const auto stream = isa == Isa::avx512 ? stream_avx512 : stream_avx2;
  const std::size_t done = head + stream(destination + head, source + head, bytes - head);
  std::memcpy(destination + done, source + done, bytes - done);
  _mm_sfence();
}
#endif

}  // namespace

void copy_streaming(void* destination, const void* source, std::size_t bytes, Isa isa) {
  if (bytes == 0) {
    return;
  }
#if HEADRACE_X86
  if (isa != Isa::scalar && bytes >= k_streaming_threshold) {
    return copy_past_caches(static_cast<std::byte*>(destination),
                            static_cast<const std::byte*>(source), bytes, isa);
  }
#endif
  static_cast<void>(isa);
  std::memcpy(destination, source, bytes);
}

}  // namespace headrace
