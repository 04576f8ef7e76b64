#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace {

enum class DType : std::uint8_t { float32, bfloat16 };

constexpr std::size_t item_size(DType dtype) { return dtype == DType::float32 ? 4 : 2; }
constexpr const char* to_string(DType dtype) {
  return dtype == DType::float32 ? "float32" : "bfloat16";
}

}  // namespace headrace
