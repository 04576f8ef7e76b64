#pragma once

#include <utility>

namespace headrace {

/// Owns a file descriptor. Every engine descriptor is also closed in a forked child, so that a
/// data-loader worker keeps nothing of the engine open.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd);
  ~Fd() { reset(); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
};

}  // namespace headrace
