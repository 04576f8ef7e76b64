#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace headrace {

/// A zero-initialised mapping: a rank's symmetric memory, or a view of a peer's. Forked children do
/// not inherit it (MADV_DONTFORK); a moved-from or forked copy unmaps nothing.
class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Private memory of this process.
  static Result<Arena> anonymous(std::size_t bytes);
  /// The memory behind `fd`, which must hold at least `bytes`.
  static Result<Arena> map(const Fd& fd, std::size_t bytes);

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  Arena(std::byte* data, std::size_t bytes);
  void unmap();

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  int owner_pid_ = 0;
};

/// Memory that other processes map through a descriptor passed to them, and by no name. Its pages
/// are reserved here, so that a machine without room gives an error now and not a bus error later;
/// its size is sealed. Only this user can open it.
struct SharedMemory {
  Fd fd;
  std::shared_ptr<Arena> arena;

  static Result<SharedMemory> create(const std::string& name, std::size_t bytes);
};

}  // namespace headrace
