#include "plan/svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace {
namespace {

using ::testing::HasSubstr;

TEST(Svg, is_a_document_whose_words_are_escaped) {
  Svg svg;
  svg.text(1, 2, "a < b & c", "end");
  svg.box({.x = 1, .y = 2, .width = 3.5, .height = 4}, "fill=\"none\"", "x > y");
  const std::string text = svg.document(10, 20);
  EXPECT_THAT(text, ::testing::StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_THAT(text, HasSubstr("viewBox=\"0 0 10 20\""));
  EXPECT_THAT(text, HasSubstr(">a &lt; b &amp; c</text>"));
  EXPECT_THAT(text, HasSubstr("width=\"3.5\" height=\"4\" fill=\"none\"><title>x &gt; y</title>"));
}

}  // namespace
}  // namespace headrace
