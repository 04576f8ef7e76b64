#pragma once

#include <cstdint>

namespace headrace {

/// The instruction sets that the host kernels are written for, each a superset of the one before.
/// Every kernel gives the same bits with each of them, except for the payload of a NaN.
enum class Isa : std::uint8_t { scalar, avx2, avx512 };

/// The highest set that this processor and its operating system can run; scalar where it is not an
/// x86-64. A kernel may be given any set up to this one. Costs a load after the first call.
Isa best_isa();

constexpr const char* to_string(Isa isa) {
  switch (isa) {
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::scalar:
      break;
  }
  return "scalar";
}

}  // namespace headrace
