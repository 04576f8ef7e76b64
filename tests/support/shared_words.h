#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace headrace::testing {

/// Zeroed words that forked ranks share with their parent.
inline std::shared_ptr<std::uint64_t> shared_words(std::size_t count) {
  const std::size_t bytes = count * sizeof(std::uint64_t);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(memory, MAP_FAILED);
  return {static_cast<std::uint64_t*>(memory),
          [bytes](std::uint64_t* words) { ::munmap(words, bytes); }};
}

}  // namespace headrace::testing
