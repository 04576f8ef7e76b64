#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ostream>

#include "model/explorer.h"
#include "model/machine.h"
#include "support/sanitizers.h"

namespace headrace::model {
namespace {

// Sanitizers slow the exploration down several times and have no threads to look at here, so that
// smaller worlds do.
constexpr bool k_small_worlds = testing::k_sanitized;
constexpr int k_most_microbatches = k_small_worlds ? 1 : 2;

Outcome run(const Script& script, const Rules& rules = {}) {
  return explore(Machine(script, rules));
}

std::string describe(const Script& script) {
  std::string text = script.push_worker ? "worker" : "inline";
  for (const Bracket& bracket : script.brackets) {
    text += bracket.evaluation ? " evaluation" : " minibatch";
    for (int rank = 0; rank < script.ranks; ++rank) {
      text += fmt::format(" {}", bracket.microbatches[static_cast<std::size_t>(rank)]);
    }
  }
  return text;
}

void expect_kept(const Script& script, const Rules& rules = {}) {
  const Outcome outcome = run(script, rules);
  ASSERT_EQ(outcome.violation, "") << describe(script) << "\n" << outcome.trace;
}

/// Every way to give `ranks` ranks 0 to `most` microbatches each.
std::vector<Bracket> all_brackets(int ranks, int most, bool evaluation = false) {
  std::vector<Bracket> brackets;
  int total = 1;
  for (int rank = 0; rank < ranks; ++rank) {
    total *= most + 1;
  }
  for (int i = 0; i < total; ++i) {
    Bracket bracket{.evaluation = evaluation};
    int rest = i;
    for (int rank = 0; rank < ranks; ++rank, rest /= most + 1) {
      bracket.microbatches[static_cast<std::size_t>(rank)] = rest % (most + 1);
    }
    brackets.push_back(bracket);
  }
  return brackets;
}

constexpr Bracket k_empty{};
constexpr Bracket k_one_each{.microbatches = {1, 1, 1}};

TEST(OnDemandModelTest, two_ranks_keep_every_promise_in_any_two_minibatches) {
  for (const bool worker : {false, true}) {
    for (const Bracket& first : all_brackets(2, k_most_microbatches)) {
      for (const Bracket& second : all_brackets(2, k_most_microbatches)) {
        expect_kept({.ranks = 2, .brackets = {first, second}, .push_worker = worker});
      }
    }
  }
}

TEST(OnDemandModelTest, three_ranks_keep_every_promise_with_any_microbatches) {
  for (const Bracket& first : all_brackets(3, 1)) {
    const auto& [a, b, c] = first.microbatches;
    const Bracket second{.microbatches = {1 - a, 1 - b, 1 - c}};
    expect_kept({.ranks = 3, .brackets = {first, second}});
  }
}

TEST(OnDemandModelTest, three_ranks_keep_every_promise_with_counts_zero_one_and_two) {
  expect_kept({.ranks = 3, .brackets = {{.microbatches = {k_most_microbatches, 0, 1}}, k_empty}});
}

TEST(OnDemandModelTest, three_ranks_keep_every_promise_with_push_workers) {
  expect_kept(
      {.ranks = 3, .brackets = {{.microbatches = {1, 0, 0}}, k_empty}, .push_worker = true});
}

TEST(OnDemandModelTest, an_owner_of_an_empty_shard_takes_part) {
  expect_kept({.ranks = 2, .brackets = {k_one_each, k_one_each}, .owners = 1});
  expect_kept({.ranks = 3, .brackets = {k_one_each}, .owners = 1, .push_worker = !k_small_worlds});
}

TEST(OnDemandModelTest, an_accumulator_of_several_chunks_is_added_to_whole) {
  expect_kept({.ranks = 2, .brackets = {k_one_each, k_one_each}, .chunks = 2, .push_worker = true});
}

TEST(OnDemandModelTest, ranks_may_run_different_numbers_of_evaluation_batches) {
  for (const Bracket& evaluation : all_brackets(2, k_most_microbatches, true)) {
    expect_kept({.ranks = 2, .brackets = {k_one_each, evaluation, k_one_each}});
  }
  expect_kept({.ranks = 3,
               .brackets = {{.microbatches = {0, 1, 0}},
                            {.evaluation = true, .microbatches = {1, 0, 0}},
                            {.microbatches = {0, 0, 1}}}});
}

TEST(OnDemandModelTest, empty_brackets_may_follow_each_other) {
  expect_kept({.ranks = 2, .brackets = {k_empty, k_empty, k_one_each, k_empty, k_empty}});
  expect_kept({.ranks = 3, .brackets = {k_empty, k_empty, k_empty, k_empty}});
}

// A fault at any step of any rank: the others end with an error that names it.

class FaultTest : public ::testing::TestWithParam<Fault> {};

TEST_P(FaultTest, is_named_by_the_other_of_two_ranks) {
  for (const Bracket& first : all_brackets(2, k_most_microbatches)) {
    for (const Bracket& second : all_brackets(2, 1)) {
      expect_kept({.ranks = 2, .brackets = {first, second}, .fault = GetParam()});
    }
  }
}

TEST_P(FaultTest, is_named_by_the_other_of_two_ranks_with_push_workers) {
  expect_kept(
      {.ranks = 2, .brackets = {k_one_each, k_one_each}, .push_worker = true, .fault = GetParam()});
}

TEST_P(FaultTest, is_named_by_all_of_three_ranks) {
  for (const Bracket& bracket : all_brackets(3, 1)) {
    std::vector<Bracket> brackets = {bracket};
    if (!k_small_worlds) {
      brackets.push_back(k_empty);
    }
    expect_kept({.ranks = 3, .brackets = brackets, .fault = GetParam()});
  }
}

TEST_P(FaultTest, is_named_by_all_of_three_ranks_with_push_workers) {
  expect_kept({.ranks = 3,
               .brackets = {{.microbatches = {1, 0, k_most_microbatches - 1}}},
               .owners = 1,
               .push_worker = true,
               .fault = GetParam()});
}

TEST_P(FaultTest, is_named_in_an_evaluation_between_minibatches) {
  expect_kept({.ranks = 2,
               .brackets = {k_one_each,
                            {.evaluation = true, .microbatches = {k_most_microbatches, 0}},
                            k_one_each},
               .fault = GetParam()});
}

std::string fault_name(const ::testing::TestParamInfo<Fault>& info) {
  return info.param == Fault::death ? "death" : "exception";
}

INSTANTIATE_TEST_SUITE_P(Any, FaultTest, ::testing::Values(Fault::death, Fault::exception),
                         fault_name);

// Liberties: rules that one may drop because another rule covers them.

TEST(OnDemandModelTest, the_wait_at_publish_is_met_once_every_bracket_settles) {
  expect_kept({.ranks = 3, .brackets = {k_empty, {.microbatches = {1, 0, 0}}, k_empty}},
              {.publish_waits_for_records = false});
}

TEST(OnDemandModelTest, the_wait_at_publish_is_enough_for_an_evaluation_that_does_not_settle) {
  const Bracket evaluation{.evaluation = true, .microbatches = {1, 0, 1}};
  expect_kept({.ranks = 3, .brackets = {k_empty, evaluation, k_empty}},
              {.evaluation_settles = false});
}

TEST(OnDemandModelTest, a_push_that_follows_a_gather_needs_no_wait_of_its_own) {
  expect_kept({.ranks = 2, .brackets = {k_one_each, k_one_each}, .push_worker = true},
              {.push_waits_for_epoch = false});
}

// The test of the test: each mistake is found, in a script that the protocol itself survives.

struct Mutant {
  const char* name;
  Script script;
  Rules rules;
  const char* violation;
};

constexpr const char* k_wrong_version = "a gather read another version of a shard";
constexpr const char* k_wrong_sum = "settle read a sum that lacks a push or holds one twice";
constexpr const char* k_hang = "waits for ever";

const std::vector<Mutant>& mutants() {
  static const Script two{.ranks = 2, .brackets = {k_one_each, k_one_each}};
  static const Script two_workers{
      .ranks = 2, .brackets = {k_one_each, k_one_each}, .push_worker = true};
  static const Script two_death{.ranks = 2, .brackets = {k_one_each}, .fault = Fault::death};
  static const Script three_death{
      .ranks = 3, .brackets = {{.microbatches = {0, 1, 1}}, k_empty}, .fault = Fault::death};
  static const Script evaluation{
      .ranks = 2, .brackets = {{.evaluation = true, .microbatches = {0, 1}}, k_one_each}};
  static const std::vector<Mutant> all = {
      {"one_record_slot",
       {.ranks = 2, .brackets = {k_empty, k_empty}},
       {.record_slots = 1},
       "a record was overwritten before its owner had read it"},
      {"publish_without_waiting_for_the_records_of_an_unsettled_bracket",
       evaluation,
       {.publish_waits_for_records = false, .evaluation_settles = false},
       k_wrong_version},
      {"settle_without_waiting_for_records", two, {.settle_waits_for_records = false}, k_wrong_sum},
      {"settle_without_waiting_for_pushes_to_be_added",
       two_workers,
       {.settle_waits_for_added = false},
       k_wrong_sum},
      {"push_counted_on_arrival", two_workers, {.count_after_add = false}, k_wrong_sum},
      {"record_epoch_before_its_payload", two_workers, {.record_epoch_last = false}, k_wrong_sum},
      {"publish_without_zeroing", two, {.publish_zeroes = false}, k_wrong_sum},
      {"zeroing_after_the_signal", two, {.zero_before_signal = false}, k_wrong_sum},
      {"copy_after_the_signal", two, {.copy_before_signal = false}, k_wrong_version},
      {"gather_without_waiting_for_the_epoch",
       two,
       {.gather_waits_for_epoch = false},
       k_wrong_version},
      {"push_without_a_lock", two, {.push_locks = false}, k_wrong_sum},
      {"waits_without_a_look_at_liveness", two_death, {.waits_check_liveness = false}, k_hang},
      {"waits_that_look_only_at_the_rank_awaited",
       three_death,
       {.waits_check_everyone = false},
       k_hang},
      {"lock_without_a_look_at_its_holder", two_death, {.lock_checks_holder = false}, k_hang},
      {"error_that_leaves_a_chunk_locked",
       {.ranks = 3,
        .brackets = {{.microbatches = {1, 0, 1}}},
        .owners = 1,
        .push_worker = true,
        .fault = Fault::death},
       {.error_finishes_chunk = false},
       k_hang},
      {"error_that_names_the_rank_awaited",
       three_death,
       {.error_names_culprit = false},
       "names the wrong rank"},
  };
  return all;
}

void PrintTo(const Mutant& mutant, std::ostream* out) { *out << mutant.name; }

class MutantTest : public ::testing::TestWithParam<Mutant> {};

TEST_P(MutantTest, is_found) {
  const Outcome outcome = run(GetParam().script, GetParam().rules);
  EXPECT_NE(outcome.violation.find(GetParam().violation), std::string::npos)
      << "found instead: '" << outcome.violation << "' in " << outcome.states << " states\n"
      << outcome.trace;
  EXPECT_NE(outcome.trace, "");
}

TEST_P(MutantTest, is_the_only_mistake) { expect_kept(GetParam().script); }

std::string mutant_name(const ::testing::TestParamInfo<Mutant>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Each, MutantTest, ::testing::ValuesIn(mutants()), mutant_name);

}  // namespace
}  // namespace headrace::model
