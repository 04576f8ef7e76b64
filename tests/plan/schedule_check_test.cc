// The checker rejects every schedule that is broken in one place, and says where and how.

#include "plan/schedule_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "plan/all_gather_signals.h"
#include "support/schedule_mutants.h"
#include "support/schedule_worlds.h"

namespace headrace {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Matcher;

constexpr Fault k_faults[] = {
    Fault::dropped_wait,        Fault::dropped_credit,   Fault::early_stage_reuse,
    Fault::early_slot_reuse,    Fault::stale_block,      Fault::double_landing,
    Fault::missing_contributor, Fault::reordered_signal, Fault::wrong_generation,
    Fault::misplaced_block,     Fault::dropped_order};

Matcher<const std::string&> blames(Fault fault) {
  // What is unordered may, in the one order that the checker runs, also have a wrong outcome.
  const Matcher<const std::string&> race =
      AnyOf(HasSubstr("without an order to"), HasSubstr("before their reader is done"),
            HasSubstr("is reached before a reader of"), HasSubstr("should hold"));
  const Matcher<const std::string&> contents =
      AnyOf(HasSubstr("should hold"), HasSubstr("lack the contribution"));
  switch (fault) {
    case Fault::dropped_wait:
    case Fault::early_stage_reuse:
    case Fault::dropped_order:
      return race;
    case Fault::dropped_credit:
      return HasSubstr("declares");
    case Fault::early_slot_reuse:
    case Fault::reordered_signal:
    case Fault::stale_block:
    case Fault::missing_contributor:
      return AnyOf(race, contents);
    case Fault::double_landing:
      return AnyOf(HasSubstr("twice"), race);
    case Fault::wrong_generation:
      return AnyOf(HasSubstr("declares"), HasSubstr(" after "), race);
    case Fault::misplaced_block:
      return AnyOf(HasSubstr("names bytes up to"), HasSubstr("twice"), race, contents);
  }
  return HasSubstr("");
}

struct World {
  int nodes;
  int local_ranks;
  bool cast;
};

class ScheduleFaultTest : public testing::TestWithParam<std::tuple<World, Fault>> {};

TEST_P(ScheduleFaultTest, is_found_wherever_it_is) {
  const auto& [world, fault] = GetParam();
  const Topology topology = Topology::make(world.nodes, world.local_ranks).value();
  const Collective valid =
      all_gather_of(topology, uneven_group(topology.world_size()), {.cast = world.cast});
  ASSERT_TRUE(schedule_check(topology, valid));
  const AllGatherSignals signals(topology);
  const auto exempt = [&](const Op& op) {
    // Confirmations pace first of all. Of 2^k + 1 nodes the last round's destination has sent in
    // round 0, after its cast or, without local peers, after all that it read: it needs no other
    // guard. Nor does completion, where no local peer is told anything.
    const bool confirmation = signals.rounds() > 0 && op.signal > signals.stage_free();
    const bool guarded = world.cast || world.local_ranks == 1;
    return (guarded && confirmation && op.kind != OpKind::mark &&
            (fault == Fault::dropped_wait || fault == Fault::reordered_signal)) ||
           (world.local_ranks == 1 && op.kind == OpKind::mark &&
            op.milestone == Milestone::complete);
  };
  std::size_t mutants = 0;
  for_each_mutant(valid, fault, exempt, [&](const Mutant& mutant) {
    ++mutants;
    const Status status = schedule_check(topology, mutant.collective);
    ASSERT_FALSE(status) << mutant.name() << " is not found";
    EXPECT_THAT(status.error().message, blames(fault)) << mutant.name();
    EXPECT_THAT(status.error().message, testing::StartsWith("rank ")) << mutant.name();
  });
  const bool applies = world.nodes > 1 || (fault != Fault::early_stage_reuse &&
                                           (fault != Fault::stale_block || world.cast));
  EXPECT_EQ(mutants > 0, applies);
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, ScheduleFaultTest,
    testing::Combine(testing::Values(World{1, 3, false}, World{1, 3, true}, World{2, 2, false},
                                     World{3, 2, false}, World{3, 2, true}, World{4, 1, false},
                                     World{5, 2, false}, World{5, 2, true}, World{9, 1, false}),
                     testing::ValuesIn(k_faults)),
    [](const auto& instance) {
      const World& world = std::get<0>(instance.param);
      std::string name = std::to_string(world.nodes) + "x" + std::to_string(world.local_ranks) +
                         (world.cast ? "_cast_" : "_") + to_string(std::get<1>(instance.param));
      std::replace(name.begin(), name.end(), ' ', '_');
      return name;
    });

class ScheduleCallsTest : public testing::TestWithParam<std::pair<int, int>> {
 protected:
  Topology topology_ = Topology::make(GetParam().first, GetParam().second).value();
  std::vector<std::vector<std::size_t>> calls_ = std::vector<std::vector<std::size_t>>(
      static_cast<std::size_t>(topology_.world_size()), {0, 1, 0, 1});
  std::vector<Collective> collectives_ = {
      all_gather_of(topology_, uneven_group(topology_.world_size()), {}),
      all_gather_of(topology_, uneven_group(2 * topology_.world_size()), {})};
};

TEST_P(ScheduleCallsTest, a_rank_that_calls_in_another_order_is_found) {
  ASSERT_TRUE(schedule_check(topology_, collectives_, calls_));
  for (std::vector<std::size_t>& of_rank : calls_) {
    std::swap(of_rank[1], of_rank[2]);
    const Status status = schedule_check(topology_, collectives_, calls_);
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message,
                AnyOf(HasSubstr("should hold"), HasSubstr("without an order to"),
                      HasSubstr("before their reader is done"), HasSubstr("waits for ever")));
    std::swap(of_rank[1], of_rank[2]);
  }
}

TEST_P(ScheduleCallsTest, a_rank_that_stops_calling_is_found) {
  for (std::size_t rank = 0; rank < calls_.size(); ++rank) {
    calls_[rank].pop_back();
    const Status status = schedule_check(topology_, collectives_, calls_);
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr("waits for ever for signal"));
    calls_[rank].push_back(1);
  }
}

TEST_P(ScheduleCallsTest, a_rank_that_stops_in_the_middle_is_found) {
  // It never raises any signal again.
  RankProgram& program = collectives_[0].programs.back();
  std::erase_if(program.ops, [](const Op& op) {
    return op.kind == OpKind::signal || op.kind == OpKind::credit;
  });
  EXPECT_FALSE(schedule_check(topology_, collectives_, calls_));
}

INSTANTIATE_TEST_SUITE_P(Worlds, ScheduleCallsTest,
                         testing::Values(std::pair{1, 3}, std::pair{2, 2}, std::pair{5, 1}));

}  // namespace
}  // namespace headrace
