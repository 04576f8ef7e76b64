#include "balance/lengths.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<std::vector<std::int64_t>> lengths(const std::string& text, const std::string& field = "",
                                          const std::string& name = "some.txt") {
  return parse_lengths({.name = name, .text = text}, field);
}

std::string message(const std::string& text, const std::string& field = "",
                    const std::string& name = "some.txt") {
  const auto result = lengths(text, field, name);
  return result ? "no error" : result.error().message;
}

TEST(Lengths, are_numbers_between_blanks_and_line_ends) {
  EXPECT_THAT(*lengths("3 5\t7\n\n  11\r\n13"), ElementsAre(3, 5, 7, 11, 13));
  EXPECT_THAT(*lengths("\xEF\xBB\xBF"
                       "42\n"),
              ElementsAre(42));
}

TEST(Lengths, are_a_field_of_json_lines) {
  EXPECT_THAT(*lengths("{\"length\": 3}\n{\"text\": \"a\", \"length\": 5}\n"), ElementsAre(3, 5));
  EXPECT_THAT(*lengths("{\"n\": 3, \"length\": 9}\n", "n"), ElementsAre(3));
  EXPECT_THAT(*lengths("{\"length\": 3}\n7\n"), ElementsAre(3, 7));
}

TEST(Lengths, are_the_items_of_a_list_field) {
  EXPECT_THAT(*lengths("{\"input_ids\": [5, 6, 7], \"labels\": [1]}\n"
                       "{\"labels\": [1, 2], \"input_ids\": [8]}\n",
                       "input_ids"),
              ElementsAre(3, 1));
  EXPECT_THAT(*lengths("{\"turns\": [[1, 2], {\"turns\": [1, 2, 3]}, null, \"x\", true]}", "turns"),
              ElementsAre(5));
  // A field of that name further down is another field.
  EXPECT_THAT(*lengths("{\"meta\": {\"length\": 1, \"x\": [2, 3]}, \"length\": 4}"),
              ElementsAre(4));
}

TEST(Lengths, are_a_column_of_comma_separated_values) {
  EXPECT_THAT(*lengths("id,length\na,3\nb, 5 \r\n\nc,7"), ElementsAre(3, 5, 7));
  EXPECT_THAT(*lengths("id,tokens\na,3\n", "tokens"), ElementsAre(3));
  EXPECT_THAT(*lengths("tokens\n3\n5\n", "tokens"), ElementsAre(3, 5));
  EXPECT_THAT(*lengths("text,length\n\"a, \"\"b\"\"\nc\",3\n\"\",\"5\"\n"), ElementsAre(3, 5));
}

TEST(Lengths, what_is_not_a_length_is_named_by_line_and_text) {
  EXPECT_THAT(message("1 2\n3 4x\n"), HasSubstr("some.txt, line 2: '4x' is not a whole number"));
  EXPECT_THAT(message("1\n\n-5\n"), HasSubstr("line 3: -5 is no length"));
  EXPECT_THAT(message("0"), HasSubstr("line 1: 0 is no length"));
  EXPECT_THAT(message("2.5"), HasSubstr("'2.5'"));
  EXPECT_THAT(message("9223372036854775808"), HasSubstr("does not fit 63 bits"));
  EXPECT_THAT(message("a,length\nx,1\ny,many\n"), HasSubstr("line 3: 'many'"));
  EXPECT_THAT(message("a,length\n\"x\ny\",1\nz,-1\n"), HasSubstr("line 4: -1"));
  EXPECT_THAT(message("{\"length\": 1}\n{\"length\": -2}\n"), HasSubstr("line 2: -2 is no length"));
  EXPECT_THAT(message(std::string(1000, 'x')), HasSubstr(fmt::format("'{:x>40}...'", "")));
}

TEST(Lengths, of_a_wrong_json_line_say_what_is_there) {
  EXPECT_THAT(message("{\"length\": 1}\n{\"length\": 2\n"),
              HasSubstr("line 2: '{\"length\": 2' is not JSON"));
  EXPECT_THAT(message("{\"tokens\": 1, \"text\": \"a\"}\n"),
              AllOf(HasSubstr("no field 'length'"), HasSubstr("there are: tokens, text"),
                    HasSubstr("--field")));
  for (const char* value : {"\"abc\"", "null", "1.5", "{\"a\":[1,2]}", "true", "1e400"}) {
    EXPECT_FALSE(lengths(fmt::format("{{\"length\": {}}}", value))) << value;
  }
  EXPECT_THAT(message("{\"length\": \"abc\"}"),
              AllOf(HasSubstr("'length' is '\"abc\"'"), HasSubstr("a list to count")));
  EXPECT_THAT(message("{\"length\": 1}\n\"abc\"\n"), HasSubstr("line 2"));
  EXPECT_THAT(message("{\"input_ids\": []}", "input_ids"), HasSubstr("0 is no length"));
}

// Written out for the message, such a value would overflow the stack.
TEST(Lengths, of_json_that_nests_without_end_are_refused) {
  constexpr std::size_t k_depth = 1'000'000;
  const std::string deep = std::string(k_depth, '[') + std::string(k_depth, ']');
  EXPECT_THAT(message("{\"length\": {\"a\": " + deep + "}}"), HasSubstr("line 1"));
  EXPECT_EQ(*lengths("{\"text\": " + deep + ", \"length\": 5}"), std::vector<std::int64_t>{5});
}

TEST(Lengths, of_a_missing_column_list_those_there_are) {
  EXPECT_THAT(message("id,tokens\na,1\n"),
              AllOf(HasSubstr("line 1"), HasSubstr("no column 'length'"),
                    HasSubstr("there are: id, tokens"), HasSubstr("--field")));
  EXPECT_THAT(message("1,2\n3,4\n"), HasSubstr("first line must name the columns"));
  EXPECT_THAT(message("id,x,length\na,1\n"), HasSubstr("line 2: there are 2 fields"));
  EXPECT_THAT(message("id,length\n\"a,1\nb,2\n"), HasSubstr("line 2: a quote is opened"));
}

TEST(Lengths, of_nothing_are_an_error) {
  EXPECT_THAT(message(""), HasSubstr("no length in some.txt"));
  EXPECT_THAT(message(" \n\n"), HasSubstr("no length in some.txt"));
  EXPECT_THAT(message("id,length\n"), HasSubstr("no length in some.txt"));
}

TEST(Lengths, in_other_forms_are_refused_with_a_way_out) {
  EXPECT_THAT(message("[1, 2]"), HasSubstr("is a list"));
  const std::string pipe = "python -m headrace.lengths data.parquet --column";
  EXPECT_THAT(message("PAR1....", "", "data.parquet"), HasSubstr(pipe + " input_ids"));
  EXPECT_THAT(read_lengths("data.parquet", "ids").error().message, HasSubstr(pipe + " ids"));
  EXPECT_THAT(read_lengths("no/such/file", "").error().message,
              AllOf(HasSubstr("no/such/file"), HasSubstr("No such file")));
}

}  // namespace
}  // namespace headrace
