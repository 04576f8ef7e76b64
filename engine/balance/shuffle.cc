#include "balance/shuffle.h"

#include <fmt/format.h>

#include <bit>
#include <numeric>
#include <utility>

namespace headrace {

std::uint64_t SplitMix64::next() {
  state_ += 0x9e3779b97f4a7c15ULL;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

std::uint64_t SplitMix64::below(std::uint64_t bound) {
  // Draws of just enough bits, those out of range thrown away: fewer than two a number on average.
  const int spare_bits = std::countl_zero((bound - 1) | 1);
  while (true) {
    if (const std::uint64_t draw = next() >> spare_bits; draw < bound) {
      return draw;
    }
  }
}

Permutation::Permutation(std::size_t size, std::uint64_t seed, std::uint64_t epoch) : order_(size) {
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  SplitMix64 random(SplitMix64(seed).next() + epoch);
  for (std::size_t left = size; left > 1; --left) {
    std::swap(order_[left - 1], order_[random.below(left)]);
  }
}

Result<std::vector<std::size_t>> Permutation::slice(std::size_t begin, std::size_t end) const {
  if (begin > end || end > order_.size()) {
    return operation_error(fmt::format("[{}, {}) does not lie within a permutation of {} samples",
                                       begin, end, order_.size()));
  }
  return std::vector<std::size_t>(order_.begin() + static_cast<std::ptrdiff_t>(begin),
                                  order_.begin() + static_cast<std::ptrdiff_t>(end));
}

}  // namespace headrace
