#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "runtime/stream.h"

namespace headrace::testing {

/// Skips without a device, says with which seed the test draws its numbers, and has a stream.
class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  Stream& stream();
  cudaStream_t handle() const { return handle_; }
  /// Another seed a call. HEADRACE_TEST_SEED repeats those of an earlier run.
  std::uint32_t next_seed() { return seed_++; }
  /// A count that no tile divides: 1 Mi + 3, or few with HEADRACE_TEST_SMALL set, for tools that
  /// slow the device down.
  static std::size_t large_count();

 private:
  std::unique_ptr<Stream> stream_;
  cudaStream_t handle_ = nullptr;
  std::uint32_t seed_ = 0;
};

/// The same bytes on the host and on the device, random from the start, so that whatever a kernel
/// leaves out or writes beside its arrays shows when the two are compared as a whole.
class TwinMemory {
 public:
  explicit TwinMemory(std::uint32_t seed) : seed_(seed) {}
  ~TwinMemory();
  TwinMemory(const TwinMemory&) = delete;
  TwinMemory& operator=(const TwinMemory&) = delete;

  /// A place for `bytes` bytes, `past` bytes beyond a multiple of 256 and away from other places.
  std::size_t place(std::size_t bytes, std::size_t past);
  /// The same for an array of numbers, special ones among them. Results may differ in NaN payloads
  /// in arrays given to `differs_in_nans`.
  std::size_t place_numbers(DType dtype, std::size_t count, std::size_t past);
  /// Numbers between -1 and 1 that use every bit of an fp32 mantissa: where many are added, a sum
  /// with special ones among them would be a NaN nearly everywhere, and equal to any other.
  std::size_t place_ordinary(DType dtype, std::size_t count, std::size_t past);
  /// Exact small integers, whose sums in any order are exact.
  std::size_t place_integers(DType dtype, std::size_t count, std::size_t past);

  /// Fixes the size; pointers are valid from here on, both sides hold the same bytes.
  void mirror();
  /// The host's bytes to the device once more.
  void upload();
  template <class T = void>
  T* host(std::size_t place) {
    return reinterpret_cast<T*>(host_ + place);
  }
  template <class T = void>
  T* device(std::size_t place) {
    return reinterpret_cast<T*>(device_ + place);
  }

  /// `count` numbers at `place` count as equal when both are NaNs.
  void differs_in_nans(std::size_t place, DType dtype, std::size_t count);
  /// Waits for the device; whether it now holds what the host does.
  ::testing::AssertionResult matches();

 private:
  struct Numbers {
    std::size_t place;
    DType dtype;
    std::size_t count;
  };

  template <class Draw>
  std::size_t place_drawn(DType dtype, std::size_t count, std::size_t past, Draw draw);

  std::uint32_t seed_;
  std::vector<std::byte> bytes_;
  std::byte* host_ = nullptr;
  std::byte* device_ = nullptr;
  std::vector<Numbers> lenient_;
};

}  // namespace headrace::testing
