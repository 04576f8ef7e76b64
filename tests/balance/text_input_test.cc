#include "balance/text_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Fields = std::vector<std::string>;

/// Each record's line and fields.
std::vector<std::pair<std::size_t, Fields>> records_of(const std::string& text) {
  CsvRecords records(text);
  std::vector<std::pair<std::size_t, Fields>> result;
  while (const CsvRecord* record = records.next().value()) {
    result.emplace_back(record->line, record->fields);
  }
  return result;
}

TEST(CsvRecords, have_their_fields_and_the_line_where_they_begin) {
  EXPECT_THAT(records_of("a,b\n\n c ,\r\nd"),
              ElementsAre(std::pair{1U, Fields{"a", "b"}}, std::pair{3U, Fields{"c", ""}},
                          std::pair{4U, Fields{"d"}}));
  EXPECT_THAT(records_of(""), ElementsAre());
}

TEST(CsvRecords, quotes_hold_commas_line_ends_and_doubled_quotes) {
  EXPECT_THAT(records_of("\"a,\"\"b\"\"\n\",x\n\"\",y\n"),
              ElementsAre(std::pair{1U, Fields{"a,\"b\"\n", "x"}}, std::pair{3U, Fields{"", "y"}}));
  CsvRecords open("a\n\"b\nc");
  EXPECT_TRUE(open.next());
  EXPECT_THAT(open.next().error().message, HasSubstr("line 2"));
}

TEST(Lines, are_trimmed_numbered_and_not_blank) {
  Lines lines("\xEF\xBB\xBF one \r\n\n\ttwo");
  const std::optional<Line> first = lines.next();
  const std::optional<Line> second = lines.next();
  EXPECT_EQ(first->text, "one");
  EXPECT_EQ(first->number, 1U);
  EXPECT_EQ(second->text, "two");
  EXPECT_EQ(second->number, 3U);
  EXPECT_FALSE(lines.next());
}

TEST(Numbers, are_the_whole_of_a_text) {
  EXPECT_EQ(*parse_whole_number("-12"), -12);
  EXPECT_EQ(*parse_number("1e-9"), 1e-9);
  for (const char* text : {"", " 1", "1 ", "1x", "x", "1.0"}) {
    EXPECT_FALSE(parse_whole_number(text)) << text;
  }
  for (const char* text : {"", "inf", "nan", "1e999", "1,2"}) {
    EXPECT_FALSE(parse_number(text)) << text;
  }
}

}  // namespace
}  // namespace headrace
