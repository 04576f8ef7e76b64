#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"

namespace headrace {

/// SplitMix64 (Steele, Lea and Flood 2014): the same numbers on every platform.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  /// Uniform in [0, bound); bound > 0.
  std::uint64_t below(std::uint64_t bound);

 private:
  std::uint64_t state_;
};

/// The order in which an epoch visits samples 0 to size - 1: a uniform permutation that depends on
/// size, seed and epoch alone.
class Permutation {
 public:
  Permutation(std::size_t size, std::uint64_t seed, std::uint64_t epoch);

  std::size_t size() const { return order_.size(); }
  /// Error that names the range where it does not lie within the permutation.
  Result<std::vector<std::size_t>> slice(std::size_t begin, std::size_t end) const;

 private:
  std::vector<std::size_t> order_;
};

}  // namespace headrace
