#pragma once

#include <cstdint>
#include <string_view>

namespace headrace {

/// 64-bit FNV-1a over everything added, in order. Not for secrets: it tells plans apart.
class Digest {
 public:
  Digest& add(std::string_view bytes) {
    for (const char c : bytes) {
      value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    }
    return add_word(bytes.size());
  }
  Digest& add_word(std::uint64_t word) {
    for (int shift = 0; shift < 64; shift += 8) {
      value_ = (value_ ^ ((word >> shift) & 0xff)) * 0x100000001b3ULL;
    }
    return *this;
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

}  // namespace headrace
