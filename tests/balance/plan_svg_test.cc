#include "balance/plan_svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "balance/support.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

std::size_t count(std::string_view text, std::string_view word) {
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    ++found;
  }
  return found;
}

// Rank 0 trains 3 and then 1, rank 1 trains 2: with a linear cost, 4 against 2.
TEST(PlanSvg, shows_both_modes_with_waiting_hatched) {
  const std::vector<std::int64_t> lengths = {3, 2, 1};
  BalanceOptions options = balance_test::options(Strategy::none, 2, 8);
  options.cost = CostModel::make(0.0, 1.0).value();
  const std::string svg = plan_svg(plan_minibatch(lengths, options).value());
  EXPECT_THAT(svg, HasSubstr("none: 6 tokens on 2 ranks, at most 8 tokens a microbatch"));
  EXPECT_THAT(svg, HasSubstr("lockstep: predicted time 4, 25.0 % of it waiting<"));
  EXPECT_THAT(svg, HasSubstr("on-demand: predicted time 4, 25.0 % of it waiting (recommended)"));
  EXPECT_EQ(count(svg, "hsl("), 2U * 3);
  EXPECT_EQ(count(svg, "url(#waiting)"), 2U) << "rank 1's end, in both modes";
  EXPECT_EQ(count(svg, "id=\"waiting\""), 1U);
  EXPECT_THAT(svg, HasSubstr("microbatch 1: 1 samples, 1 tokens, cost 1"));
  EXPECT_EQ(count(svg, "<svg"), count(svg, "</svg>"));
  EXPECT_EQ(count(svg, "http"), 1U) << "only the name space: nothing is loaded";
}

}  // namespace
}  // namespace headrace
