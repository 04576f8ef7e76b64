#include "balance/cost_model_parse.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A file that is gone when the test is.
class Scratch {
 public:
  Scratch(const std::string& name, const std::string& text)
      : path_((std::filesystem::path(::testing::TempDir()) / ("headrace_" + name)).string()) {
    std::ofstream(path_) << text;
  }
  ~Scratch() { std::filesystem::remove(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string message(const std::string& text) {
  const Result<CostModel> model = parse_cost_model(text);
  return model ? "no error" : model.error().message;
}

TEST(CostModelParse, takes_presets_and_coefficients) {
  EXPECT_EQ(*parse_cost_model("7B"), *CostModel::preset("7B"));
  EXPECT_EQ(*parse_cost_model("1e-9,2e-5"), *CostModel::make(1e-9, 2e-5));
  EXPECT_EQ(*parse_cost_model("0, 1, 250"), *CostModel::make(0.0, 1.0, 250.0));
}

TEST(CostModelParse, takes_a_configuration_by_its_name) {
  const Scratch config("small.json",
                       R"({"hidden_size": 4, "num_hidden_layers": 2, "num_attention_heads": 2,
                           "intermediate_size": 5, "vocab_size": 7})");
  EXPECT_EQ(*parse_cost_model(config.path()), *CostModel::from_shape({.hidden = 4,
                                                                      .layers = 2,
                                                                      .heads = 2,
                                                                      .kv_heads = 2,
                                                                      .head_size = 2,
                                                                      .intermediate = 5,
                                                                      .vocabulary = 7}));
  const Scratch wrong("wrong.json", "{\"hidden_size\": 4}");
  EXPECT_THAT(message(wrong.path()),
              AllOf(HasSubstr(wrong.path()), HasSubstr("num_hidden_layers")));
}

// 3 s^2 + 2 s + 5 at four lengths.
constexpr const char* k_points = "tokens,cost\n1,10\n2,21\n3,38\n10,325\n";

TEST(CostModelParse, fits_measured_points) {
  const Scratch named("points.csv", k_points);
  const Scratch bare("points.txt", "1,10\r\n2,21\r\n\r\n3,38\r\n10,325\r\n");
  const Scratch swapped("swapped.csv", "cost,run,tokens\n10,a,1\n21,b,2\n38,c,3\n325,d,10\n");
  const Scratch lines("points.jsonl",
                      "{\"tokens\": 1, \"cost\": 10}\n{\"cost\": 21.0, \"tokens\": 2}\n"
                      "{\"tokens\": 3, \"cost\": 38}\n{\"tokens\": 10, \"cost\": 325}\n");
  for (const Scratch* file : {&named, &bare, &swapped, &lines}) {
    const Result<CostModel> model = parse_cost_model(file->path());
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_NEAR(model->quadratic(), 3.0, 1e-9) << file->path();
    EXPECT_NEAR(model->linear(), 2.0, 1e-8) << file->path();
    EXPECT_NEAR(model->per_microbatch(), 5.0, 1e-8) << file->path();
  }
}

TEST(CostModelParse, two_lengths_decide_no_cost_a_microbatch) {
  const Scratch points("two.csv", "1,10\n2,21\n");
  EXPECT_EQ(parse_cost_model(points.path())->per_microbatch(), 0.0);
}

TEST(CostModelParse, bad_points_are_named_by_line) {
  const auto of = [](const std::string& text) {
    const Scratch file("bad.csv", text);
    const std::string said = message(file.path());
    EXPECT_THAT(said, HasSubstr(file.path()));
    return said;
  };
  EXPECT_THAT(of("tokens,cost\n1,10\n2,fast\n"), HasSubstr("line 3: 'fast'"));
  EXPECT_THAT(of("1,10\n2.5,3\n"), HasSubstr("line 2: '2.5' is not a whole number"));
  EXPECT_THAT(of("1,10\n2\n"), HasSubstr("line 2: a point needs tokens and cost"));
  EXPECT_THAT(of("length,ms\n1,10\n"), HasSubstr("no column 'tokens'; there are: length, ms"));
  EXPECT_THAT(of("{\"tokens\": 1}\n"), HasSubstr("line 1"));
  EXPECT_THAT(of("\n\n"), HasSubstr("no measured point"));
  EXPECT_THAT(of("5,10\n5,11\n"), HasSubstr("2 distinct lengths"));
  EXPECT_THAT(of("5,10\n6,-1\n"), HasSubstr("point 1"));
}

TEST(CostModelParse, lists_what_a_cost_model_may_be) {
  for (const char* text : {"70B", "no/such/file.csv", "1,2,3,4", "1,two", ""}) {
    EXPECT_THAT(message(text), AllOf(HasSubstr(fmt::format("'{}' is no cost model", text)),
                                     HasSubstr("1.5B, 7B"), HasSubstr("config.json"),
                                     HasSubstr("quadratic,linear"), HasSubstr("measured points")));
  }
  EXPECT_THAT(message("1,two"), HasSubstr("'two'"));
  EXPECT_THAT(message("-1,2"), HasSubstr("quadratic"));
}

}  // namespace
}  // namespace headrace
