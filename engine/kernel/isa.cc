#include "kernel/isa.h"

namespace headrace {
namespace {

Isa detect_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2 && __builtin_cpu_supports("avx512f")) {
    return Isa::avx512;
  }
  if (avx2) {
    return Isa::avx2;
  }
#endif
  return Isa::scalar;
}

}  // namespace

Isa best_isa() {
  static const Isa isa = detect_isa();
  return isa;
}

}  // namespace headrace
