#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace headrace {

/// Sums of ranks' contributions, each distinct association once: 0..ranks-1 are the ranks' own
/// contributions, then come sums in the order of their first use.
class Expressions {
 public:
  explicit Expressions(std::size_t ranks);

  /// The sum of at least one operand, in this order; none where a rank would be in it twice.
  std::optional<std::uint32_t> sum(const std::vector<std::uint32_t>& operands);
  std::size_t contributors(std::uint32_t expression) const;
  bool contributes(std::uint32_t expression, std::size_t rank) const {
    return members_[expression][rank];
  }

 private:
  std::vector<std::vector<bool>> members_;
  std::map<std::vector<std::uint32_t>, std::optional<std::uint32_t>> sums_;
};

}  // namespace headrace
