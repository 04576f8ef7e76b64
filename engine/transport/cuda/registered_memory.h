#pragma once

#include <cstddef>
#include <memory>

#include "base/result.h"
#include "runtime/arena.h"

namespace headrace {

/// Memory of the host that the current device may read, write and wait for, as long as this lives.
class RegisteredMemory {
 public:
  static Result<std::shared_ptr<RegisteredMemory>> make(std::shared_ptr<Arena> memory,
                                                        std::size_t bytes);
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  std::byte* host() const { return memory_->data(); }
  std::byte* device() const { return device_; }

 private:
  explicit RegisteredMemory(std::shared_ptr<Arena> memory) : memory_(std::move(memory)) {}

  std::shared_ptr<Arena> memory_;
  std::byte* device_ = nullptr;
};

}  // namespace headrace
