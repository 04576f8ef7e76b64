#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace headrace::testing {

/// Where this process notes, as now_ns gives it, when it kills itself: a word that ranks share.
inline std::uint64_t* death_note = nullptr;

/// Kills this process.
inline void die() {
  *death_note = static_cast<std::uint64_t>(now_ns());
  ::kill(::getpid(), SIGKILL);
}

/// A touch of what follows the first page kills this process at that very instruction.
inline std::byte* memory_that_kills() {
  struct sigaction action{};
  action.sa_handler = [](int) { die(); };
  ::sigaction(SIGSEGV, &action, nullptr);
  ::sigaction(SIGBUS, &action, nullptr);
  const std::size_t bytes = std::size_t{16} << 20;
  auto* memory = static_cast<std::byte*>(
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ::mprotect(memory + 4096, bytes - 4096, PROT_NONE);
  return memory;
}

}  // namespace headrace::testing
