#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

namespace headrace::testing {

/// A touch of what follows the first page kills this process at that very instruction.
inline std::byte* memory_that_kills() {
  struct sigaction action{};
  action.sa_handler = [](int) { ::kill(::getpid(), SIGKILL); };
  ::sigaction(SIGSEGV, &action, nullptr);
  ::sigaction(SIGBUS, &action, nullptr);
  const std::size_t bytes = std::size_t{16} << 20;
  auto* memory = static_cast<std::byte*>(
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ::mprotect(memory + 4096, bytes - 4096, PROT_NONE);
  return memory;
}

}  // namespace headrace::testing
