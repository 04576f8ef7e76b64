#include "kernel/cast.h"

#include "kernel/copy.h"
#include "kernel/element.h"
#include "kernel/simd.h"

namespace headrace {
namespace {

template <DType to, DType from>
void cast_scalar(void* destination, const void* source, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    store_element<to>(destination, i, load_element<from>(source, i));
  }
}

#if HEADRACE_X86
template <DType to, DType from>
HEADRACE_AVX2 void cast_avx2(void* destination, const void* source, std::size_t count) {
  std::size_t i = 0;
  for (; i + k_avx2_lanes <= count; i += k_avx2_lanes) {
    store_avx2<to>(destination, i, load_avx2<from>(source, i));
  }
  cast_scalar<to, from>(destination, source, i, count);
}

template <DType to, DType from>
HEADRACE_AVX512 void cast_avx512(void* destination, const void* source, std::size_t count) {
  std::size_t i = 0;
  for (; i + k_avx512_lanes <= count; i += k_avx512_lanes) {
    store_avx512<to>(destination, i, load_avx512<from>(source, i));
  }
  cast_scalar<to, from>(destination, source, i, count);
}
#endif

template <DType to, DType from>
void cast_with(Isa isa, void* destination, const void* source, std::size_t count) {
#if HEADRACE_X86
  if (isa == Isa::avx512) {
    return cast_avx512<to, from>(destination, source, count);
  }
  if (isa == Isa::avx2) {
    return cast_avx2<to, from>(destination, source, count);
  }
#endif
  static_cast<void>(isa);
  cast_scalar<to, from>(destination, source, 0, count);
}

}  // namespace

void cast(void* destination, DType destination_dtype, const void* source, DType source_dtype,
          std::size_t count, Isa isa) {
  if (destination_dtype == source_dtype) {
    copy_streaming(destination, source, count * item_size(source_dtype), isa);
  } else if (destination_dtype == DType::bfloat16) {
    cast_with<DType::bfloat16, DType::float32>(isa, destination, source, count);
  } else {
    cast_with<DType::float32, DType::bfloat16>(isa, destination, source, count);
  }
}

}  // namespace headrace
