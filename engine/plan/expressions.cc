#include "plan/expressions.h"

#include <algorithm>

namespace headrace {

Expressions::Expressions(std::size_t ranks) {
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    members_.emplace_back(ranks, false);
    members_.back()[rank] = true;
  }
}

std::optional<std::uint32_t> Expressions::sum(const std::vector<std::uint32_t>& operands) {
  if (operands.size() == 1) {
    return operands.front();
  }
  const auto [found, first] = sums_.try_emplace(operands, std::nullopt);
  if (!first) {
    return found->second;
  }
  std::vector<bool> members(members_.front().size(), false);
  for (const std::uint32_t operand : operands) {
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      if (members_[operand][rank] && members[rank]) {
        return std::nullopt;
      }
      members[rank] = members[rank] || members_[operand][rank];
    }
  }
  found->second = static_cast<std::uint32_t>(members_.size());
  members_.push_back(std::move(members));
  return found->second;
}

std::size_t Expressions::contributors(std::uint32_t expression) const {
  return static_cast<std::size_t>(
      std::count(members_[expression].begin(), members_[expression].end(), true));
}

}  // namespace headrace
