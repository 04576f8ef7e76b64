#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "balance/strategies.h"
#include "balance/support.h"

namespace headrace {
namespace {

using balance_test::each_once;
using balance_test::samples_of;

struct Case {
  std::string id;
  nlohmann::json json;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.json.dump(); }

std::vector<Case> read_cases() {
  std::vector<Case> cases;
  std::ifstream file(HEADRACE_TEST_DATA "/balance_cases.jsonl");
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    cases.push_back({json.at("id").get<std::string>(), json});
  }
  return cases;
}

std::vector<std::int64_t> lengths_of(const nlohmann::json& json) {
  if (json.contains("lengths_repeat")) {
    const auto& repeat = json.at("lengths_repeat");
    return std::vector<std::int64_t>(repeat.at("count").get<std::size_t>(),
                                     repeat.at("value").get<std::int64_t>());
  }
  return json.at("lengths").get<std::vector<std::int64_t>>();
}

class ReportedCase : public ::testing::TestWithParam<Case> {};

TEST_P(ReportedCase, holds) {
  const nlohmann::json& json = GetParam().json;
  const nlohmann::json& expect = json.at("expect");
  const std::vector<std::int64_t> lengths = lengths_of(json);
  const Result<BalancePlan> plan = plan_minibatch(
      lengths,
      balance_test::options(parse_strategy(json.at("strategy").get<std::string>()).value(),
                            json.at("world_size").get<int>(), json.at("cap").get<std::int64_t>()));
  std::size_t checked = 0;
  if (expect.contains("error")) {
    ASSERT_FALSE(plan);
    for (const auto& word : expect.at("error")) {
      EXPECT_THAT(plan.error().message, ::testing::HasSubstr(word.get<std::string>()));
    }
    EXPECT_EQ(plan.error().scope, Scope::operation);
    EXPECT_EQ(expect.size(), 1U);
    return;
  }
  ASSERT_TRUE(plan) << plan.error().describe();
  if (expect.contains("microbatches")) {
    std::size_t microbatches = 0;
    for (const auto& rank : plan->ranks) {
      microbatches += rank.size();
    }
    EXPECT_EQ(microbatches, expect.at("microbatches").get<std::size_t>());
    ++checked;
  }
  if (expect.contains("max_tokens")) {
    EXPECT_EQ(balance_test::largest_microbatch(*plan), expect.at("max_tokens").get<std::int64_t>());
    ++checked;
  }
  if (expect.contains("sizes")) {
    std::vector<std::size_t> sizes;
    for (const auto& rank : plan->ranks) {
      std::size_t size = 0;
      for (const Microbatch& microbatch : rank) {
        size += microbatch.pieces.size();
      }
      sizes.push_back(size);
    }
    std::ranges::sort(sizes, std::greater<>());
    EXPECT_EQ(sizes, expect.at("sizes").get<std::vector<std::size_t>>());
    ++checked;
  }
  if (expect.contains("each_once")) {
    EXPECT_EQ(samples_of(*plan), each_once(lengths.size()));
    ++checked;
  }
  EXPECT_EQ(checked, expect.size()) << "an expectation that this test does not know";
}

INSTANTIATE_TEST_SUITE_P(Balance, ReportedCase, ::testing::ValuesIn(read_cases()),
                         [](const ::testing::TestParamInfo<Case>& one) {
                           std::string name = one.param.id;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(ReportedCases, are_all_read) { EXPECT_EQ(read_cases().size(), 13U); }

}  // namespace
}  // namespace headrace
