// Tables and pictures of plans, against the figures of the TIDE paper.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "plan/schedule_svg.h"
#include "plan/schedule_text.h"

namespace headrace {
namespace {

using testing::HasSubstr;

std::size_t count(std::string_view text, std::string_view word) {
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    ++found;
  }
  return found;
}

/// Lines with their runs of blanks made one.
std::string squeezed(const std::string& text) {
  std::string result;
  for (const char letter : text) {
    if (letter == ' ' && (result.empty() || result.back() == ' ' || result.back() == '\n')) {
      continue;
    }
    if (letter == '\n' && !result.empty() && result.back() == ' ') {
      result.pop_back();
    }
    result += letter;
  }
  return result;
}

TEST(ScheduleTextTest, five_nodes_hold_after_each_round_what_figure_5_shows) {
  const std::string text = squeezed(all_gather_text(Topology::make(5, 2).value()));
  EXPECT_THAT(text, HasSubstr("\n2 [0, 1) n - 4 [4, 5)\n"));
  EXPECT_THAT(text, HasSubstr("\n0 0 0 1 0 1 2 3 0 1 2 3 4\n"));
  EXPECT_THAT(text, HasSubstr("\n3 3 3 4 3 4 0 1 3 4 0 1 2\n"));
}

TEST(ScheduleTextTest, a_rank_sends_along_its_rail) {
  const std::string text = squeezed(all_gather_text(Topology::make(5, 2).value(), 3));
  // Node 1, local rank 1; in round 1 slots 0 and 1 go to node 4, those of node 3 come.
  EXPECT_THAT(text, HasSubstr("\n1 [0, 2) 9 [2, 4) 7 3 4\n"));
}

TEST(ScheduleTextTest, four_nodes_lie_on_four_local_ranks_as_a_latin_square) {
  const Topology topology = Topology::make(4, 4).value();
  const WavePlan plan = WavePlan::make(topology, {.width = 4, .transfers = 2}).value();
  const std::string text = squeezed(reduce_scatter_text(plan, 3));
  EXPECT_THAT(text, HasSubstr("local rank 0 3 2 1 0\n"));
  EXPECT_THAT(text, HasSubstr("local rank 1 0 3 2 1\n"));
  EXPECT_THAT(text, HasSubstr("local rank 2 1 0 3 2\n"));
  EXPECT_THAT(text, HasSubstr("local rank 3 2 1 0 3\n"));
  EXPECT_THAT(text, HasSubstr("\n0 0 [1, 3) 2 1\n"));
  EXPECT_THAT(text, HasSubstr("\n0 own [4, 5) 3\n"));
}

TEST(ScheduleTextTest, a_rank_of_a_reduce_scatter_sends_each_remote_node_one_sub_slice) {
  const Topology topology = Topology::make(4, 4).value();
  const WavePlan plan = WavePlan::make(topology, {.width = 2, .transfers = 1}).value();
  const std::string text = squeezed(reduce_scatter_rank_text(plan, 6));
  EXPECT_THAT(text, HasSubstr("\n0 0 1 sub-slice 3 to rank 10 sub-slice 3 from rank 2\n"));
  EXPECT_THAT(text, HasSubstr("\n1 2 3 sub-slice 1 to rank 2 sub-slice 1 from rank 10\n"));
  EXPECT_THAT(text, HasSubstr("\n1 own 4 sub-slice 2 stays\n"));
}

TEST(ScheduleSvgTest, an_all_gather_shows_every_shard_that_a_node_holds) {
  const std::string svg = all_gather_svg(Topology::make(5, 1).value());
  EXPECT_EQ(count(svg, "<rect"), 5U * (1 + 2 + 4 + 5));
  // Bold where they come: every node gets every shard once.
  EXPECT_EQ(count(svg, "stroke-width=\"2\""), 5U * 5U);
  EXPECT_EQ(count(svg, "<svg"), count(svg, "</svg>"));
}

TEST(ScheduleSvgTest, a_reduce_scatter_shows_a_square_a_wave) {
  const Topology topology = Topology::make(6, 4).value();
  const WavePlan plan = WavePlan::make(topology, {.width = 4, .transfers = 2}).value();
  const std::string svg = reduce_scatter_svg(plan, 5);
  EXPECT_EQ(count(svg, "<rect"), 2U * 4 * 4);
  EXPECT_EQ(count(svg, "hsl("), 6U * 4);  // six contributors, each on four local ranks
}

}  // namespace
}  // namespace headrace
