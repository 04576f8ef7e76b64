#include "balance/pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace headrace {
namespace {

using ::testing::HasSubstr;
using Lengths = std::vector<std::int64_t>;

TEST(Pieces, are_whole_samples_up_to_exactly_the_cap) {
  const Pieces pieces = pieces_under_cap(Lengths{20, 1}, 20, 1, Oversize::error).value();
  EXPECT_EQ(pieces.pieces, (std::vector<SamplePiece>{{0, 0, 20}, {1, 0, 1}}));
  EXPECT_EQ(pieces.tokens, 21);
  EXPECT_EQ(pieces.tokens_lost, 0);
  EXPECT_TRUE(pieces.oversize.empty());
}

TEST(Pieces, oversize_error_names_index_length_cap_and_the_way_out) {
  const Result<Pieces> pieces = pieces_under_cap(Lengths{3, 21}, 20, 1, Oversize::error);
  ASSERT_FALSE(pieces);
  EXPECT_THAT(pieces.error().message, HasSubstr("index 1 has 21 tokens"));
  EXPECT_THAT(pieces.error().message, HasSubstr("cap of 20"));
  EXPECT_THAT(pieces.error().message, HasSubstr("truncate, drop or split"));
}

TEST(Pieces, truncate_keeps_the_first_tokens_and_counts_the_rest_as_lost) {
  const Pieces pieces = pieces_under_cap(Lengths{3, 21, 20}, 20, 1, Oversize::truncate).value();
  EXPECT_EQ(pieces.pieces, (std::vector<SamplePiece>{{0, 0, 3}, {1, 0, 20}, {2, 0, 20}}));
  EXPECT_EQ(pieces.tokens_lost, 1);
  EXPECT_EQ(pieces.tokens, 43);
  EXPECT_EQ(pieces.oversize, std::vector<std::size_t>{1});
}

TEST(Pieces, drop_leaves_the_sample_out_and_counts_all_of_it_as_lost) {
  const Pieces pieces = pieces_under_cap(Lengths{3, 21, 20}, 20, 1, Oversize::drop).value();
  EXPECT_EQ(pieces.pieces, (std::vector<SamplePiece>{{0, 0, 3}, {2, 0, 20}}));
  EXPECT_EQ(pieces.tokens_lost, 21);
  EXPECT_EQ(pieces.tokens, 23);
  EXPECT_EQ(pieces.oversize, std::vector<std::size_t>{1});
}

TEST(Pieces, drop_of_everything_is_an_error) {
  const Result<Pieces> pieces = pieces_under_cap(Lengths{30, 21}, 20, 1, Oversize::drop);
  ASSERT_FALSE(pieces);
  EXPECT_THAT(pieces.error().message, HasSubstr("nothing is left"));
}

TEST(Pieces, split_covers_the_sample_in_equal_pieces_and_loses_nothing) {
  const Pieces pieces = pieces_under_cap(Lengths{50, 7}, 20, 1, Oversize::split).value();
  EXPECT_EQ(pieces.pieces,
            (std::vector<SamplePiece>{{0, 0, 17}, {0, 17, 17}, {0, 34, 16}, {1, 0, 7}}));
  EXPECT_EQ(pieces.tokens_lost, 0);
  EXPECT_EQ(pieces.tokens, 57);
  EXPECT_EQ(pieces.oversize, std::vector<std::size_t>{0});
}

// 19 tokens aligned to 8 take 24 of the cap of 20, though 19 alone would fit.
TEST(Pieces, alignment_counts_towards_the_cap) {
  EXPECT_THAT(pieces_under_cap(Lengths{19}, 20, 8, Oversize::error).error().message,
              HasSubstr("aligned to 8"));
  EXPECT_EQ(pieces_under_cap(Lengths{19}, 20, 8, Oversize::truncate)->pieces,
            (std::vector<SamplePiece>{{0, 0, 16}}));
  EXPECT_EQ(pieces_under_cap(Lengths{19}, 20, 8, Oversize::split)->pieces,
            (std::vector<SamplePiece>{{0, 0, 10}, {0, 10, 9}}));
  EXPECT_TRUE(pieces_under_cap(Lengths{16}, 20, 8, Oversize::error));
}

TEST(Pieces, bad_input_names_what_is_wrong) {
  EXPECT_THAT(pieces_under_cap({}, 8, 1, Oversize::error).error().message, HasSubstr("empty"));
  EXPECT_THAT(pieces_under_cap(Lengths{1}, 0, 1, Oversize::error).error().message,
              HasSubstr("cap of a microbatch must be at least 1, not 0"));
  EXPECT_THAT(pieces_under_cap(Lengths{1}, 8, 9, Oversize::error).error().message,
              HasSubstr("alignment must lie between 1 and the cap of 8 tokens, not 9"));
  EXPECT_THAT(pieces_under_cap(Lengths{1}, 8, 0, Oversize::error).error().message,
              HasSubstr("not 0"));
  for (const Oversize policy :
       {Oversize::error, Oversize::truncate, Oversize::drop, Oversize::split}) {
    EXPECT_THAT(pieces_under_cap(Lengths{5, -3}, 8, 1, policy).error().message,
                HasSubstr("index 1 has length -3"));
  }
}

TEST(Pieces, errors_name_labels_where_given) {
  const Lengths labels = {700, 900};
  EXPECT_THAT(pieces_under_cap(Lengths{5, 9}, 8, 1, Oversize::error, labels).error().message,
              HasSubstr("index 900 has 9 tokens"));
  EXPECT_THAT(pieces_under_cap(Lengths{0, 9}, 8, 1, Oversize::error, labels).error().message,
              HasSubstr("index 700 has length 0"));
  EXPECT_THAT(pieces_under_cap(Lengths{5}, 8, 1, Oversize::error, labels).error().message,
              HasSubstr("2 labels for 1 lengths"));
}

TEST(Pieces, total_that_does_not_fit_63_bits_is_an_error) {
  constexpr std::int64_t k_most = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(pieces_under_cap(Lengths{k_most, 1}, k_most, 1, Oversize::error).error().message,
              HasSubstr("63 bits"));
  EXPECT_TRUE(pieces_under_cap(Lengths{k_most}, k_most, 1, Oversize::error));
}

TEST(Pieces, splitting_into_no_end_of_pieces_is_an_error) {
  constexpr std::int64_t k_long = std::int64_t{1} << 62;
  EXPECT_THAT(pieces_under_cap(Lengths{k_long}, 1, 1, Oversize::split).error().message,
              HasSubstr("at most 1 tokens makes more than 16777216 pieces"));
  EXPECT_EQ(pieces_under_cap(Lengths{k_long}, k_long / 4, 1, Oversize::split)->pieces.size(), 4U);
}

TEST(Pieces, policies_have_the_names_that_users_write) {
  for (const Oversize policy :
       {Oversize::error, Oversize::truncate, Oversize::drop, Oversize::split}) {
    EXPECT_EQ(parse_oversize(to_string(policy)).value(), policy);
  }
  EXPECT_THAT(parse_oversize("cut").error().message, HasSubstr("'cut'"));
}

}  // namespace
}  // namespace headrace
