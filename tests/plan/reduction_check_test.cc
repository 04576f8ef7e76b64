// The checker's rules for reductions, on two schedules small enough to be written out.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/address_map.h"
#include "plan/program_builder.h"
#include "plan/schedule_check.h"
#include "support/schedule_mutants.h"

namespace headrace {
namespace {

using testing::HasSubstr;

constexpr std::size_t k_elements = 6;  ///< a rank

GroupSpec one_parameter() {
  return {.name = "one", .parameters = {{.rows = 4, .row_elements = 3, .dtype = DType::bfloat16}}};
}

Strided at(int local, Region region, std::size_t offset = 0, DType dtype = DType::float32) {
  return {.place = {.local = local, .region = region, .offset = offset}, .dtype = dtype};
}

/// The rows of `owner` in the gradient of local rank `local`.
Strided gradient(int local, int owner) {
  return at(local, Region::gradient,
            static_cast<std::size_t>(owner) * k_elements * item_size(DType::bfloat16),
            DType::bfloat16);
}

Op data(OpKind kind, Strided destination, std::vector<Strided> sources, bool finish = false) {
  return {.kind = kind,
          .lane = Lane::local,
          .destination = destination,
          .sources = std::move(sources),
          .rows = 1,
          .elements = k_elements,
          .finish = finish};
}

constexpr std::size_t k_block = k_elements * sizeof(float);

ScheduleShape shape_of(std::size_t blocks) {
  ScheduleShape shape;
  for (const Region region : {Region::staging, Region::outbox, Region::inbox}) {
    shape.regions[static_cast<std::size_t>(region)].bytes = blocks * k_block;
  }
  shape.signals = 4;
  return shape;
}

/// One node of two: rank 1 sums what rank 0 has staged and its own, rank 0 zeroes its inbox, both
/// land. That rank 0 is done with a call, rank 1 sees from what it stages in the next.
Collective staged_and_zeroed() {
  enum Signals : SignalId { staged, whole, landed };
  Collective collective{
      .kind = CollectiveKind::reduce_scatter, .group = one_parameter(), .shape = shape_of(2)};
  for (const int rank : {0, 1}) {
    const int peer = 1 - rank;
    ProgramBuilder builder;
    if (rank == 1) {
      builder.wait(Lane::local, peer, staged, 1);
    } else {
      for (const int owner : {0, 1}) {
        const auto slot = static_cast<std::size_t>(owner) * k_block;
        builder.add(data(OpKind::copy, at(1, Region::staging, slot, DType::bfloat16),
                         {gradient(rank, owner)}));
      }
      builder.raise(OpKind::signal, Lane::local, peer, staged);
      builder.wait_for_earlier(Lane::local, peer, landed, 1);
    }
    for (const int owner : {0, 1}) {
      const auto slot = static_cast<std::size_t>(owner) * k_block;
      builder.add(
          rank == 0 ? data(OpKind::zero, at(0, Region::inbox, slot), {})
                    : data(OpKind::sum, at(1, Region::inbox, slot),
                           {at(1, Region::staging, slot, DType::bfloat16), gradient(rank, owner)}));
    }
    builder.mark(Lane::local, Milestone::sources_consumed);
    builder.raise(OpKind::signal, Lane::local, peer, whole);
    builder.wait(Lane::local, peer, whole, 1);
    const auto slot = static_cast<std::size_t>(rank) * k_block;
    builder.add(data(OpKind::land, at(rank, Region::output),
                     {at(0, Region::inbox, slot), at(1, Region::inbox, slot)}, true));
    if (rank == 1) {
      builder.raise(OpKind::credit, Lane::local, peer, landed);
    }
    builder.mark(Lane::local, Milestone::complete);
    collective.programs.push_back(std::move(builder).take());
  }
  return collective;
}

/// Two nodes of one: the remote partial lands, then the own gradient is added.
Collective two_waves() {
  enum Signals : SignalId { arrived, inbox_free };
  Collective collective{
      .kind = CollectiveKind::reduce_scatter, .group = one_parameter(), .shape = shape_of(1)};
  for (const int rank : {0, 1}) {
    const int peer = 1 - rank;
    ProgramBuilder builder;
    builder.add(data(OpKind::sum, at(0, Region::outbox), {gradient(0, peer)}));
    builder.wait_for_earlier(Lane::local, peer, inbox_free, 1);
    Op put = data(OpKind::put, at(0, Region::inbox), {at(0, Region::outbox)});
    put.peer = peer;
    builder.add(std::move(put));
    builder.raise(OpKind::signal, Lane::local, peer, arrived);
    builder.wait(Lane::local, peer, arrived, 1);
    builder.add(data(OpKind::land, at(0, Region::output), {at(0, Region::inbox)}, /*finish=*/true));
    builder.raise(OpKind::credit, Lane::local, peer, inbox_free);
    builder.add(data(OpKind::sum, at(0, Region::output), {at(0, Region::output), gradient(0, rank)},
                     /*finish=*/true));
    builder.mark(Lane::local, Milestone::sources_consumed);
    builder.mark(Lane::local, Milestone::complete);
    collective.programs.push_back(std::move(builder).take());
  }
  return collective;
}

struct Case {
  const char* name;
  int nodes;
  Collective collective;

  Topology topology() const { return Topology::make(nodes, 2 / nodes).value(); }
};

class ReductionCheckTest : public testing::TestWithParam<int> {
 protected:
  Case case_ =
      GetParam() == 1 ? Case{"staged", 1, staged_and_zeroed()} : Case{"waves", 2, two_waves()};
};

TEST_P(ReductionCheckTest, every_fault_is_found_wherever_it_is) {
  const Status valid = schedule_check(case_.topology(), case_.collective);
  ASSERT_TRUE(valid) << valid.error().message;
  std::size_t mutants = 0;
  for (const Fault fault : {Fault::dropped_wait, Fault::dropped_credit, Fault::early_stage_reuse,
                            Fault::early_slot_reuse, Fault::stale_block, Fault::double_landing,
                            Fault::missing_contributor, Fault::reordered_signal,
                            Fault::wrong_generation, Fault::misplaced_block}) {
    for_each_mutant(
        case_.collective, fault, [](const Op&) { return false; },
        [&](const Mutant& mutant) {
          ++mutants;
          EXPECT_FALSE(schedule_check(case_.topology(), mutant.collective))
              << mutant.name() << " is not found";
        });
  }
  EXPECT_GT(mutants, 20U);
}

INSTANTIATE_TEST_SUITE_P(Nodes, ReductionCheckTest, testing::Values(1, 2));

/// The error of the schedule with its first operation of this kind changed.
template <class Change>
std::string error_with(Collective collective, const Topology& topology, OpKind kind,
                       Change change) {
  for (RankProgram& program : collective.programs) {
    for (Op& op : program.ops) {
      if (op.kind == kind) {
        change(op);
        const Status status = schedule_check(topology, collective);
        return status ? "" : status.error().message;
      }
    }
  }
  return "";
}

TEST(ReductionRulesTest, sums_are_finished_once_and_hold_every_rank_once) {
  const Topology node = Topology::make(1, 2).value();
  const Topology rail = Topology::make(2, 1).value();
  EXPECT_THAT(
      error_with(staged_and_zeroed(), node, OpKind::land, [](Op& op) { op.finish = false; }),
      HasSubstr("without finishing"));
  EXPECT_THAT(error_with(two_waves(), rail, OpKind::sum, [](Op& op) { op.finish = true; }),
              HasSubstr("a finished addend"));
  EXPECT_THAT(error_with(two_waves(), rail, OpKind::sum,
                         [](Op& op) { op.sources.push_back(op.sources.front()); }),
              HasSubstr("one contribution twice"));
  EXPECT_THAT(
      error_with(staged_and_zeroed(), node, OpKind::sum, [](Op& op) { op.sources.pop_back(); }),
      HasSubstr("lack the contribution of rank 1"));
  EXPECT_THAT(error_with(staged_and_zeroed(), node, OpKind::sum,
                         [](Op& op) { op.sources[1].place.offset += 2; }),
              HasSubstr("a sum of different elements"));
}

TEST(ReductionRulesTest, programs_touch_only_what_they_may) {
  const Topology node = Topology::make(1, 2).value();
  const Topology rail = Topology::make(2, 1).value();
  const auto of_node = [&](OpKind kind, auto change) {
    return error_with(staged_and_zeroed(), node, kind, change);
  };
  EXPECT_THAT(of_node(OpKind::copy, [](Op& op) { op.sources[0].place.local = 1; }),
              HasSubstr("touches the gradient of local rank 1"));
  EXPECT_THAT(of_node(OpKind::copy, [](Op& op) { op.elements = 100; }),
              HasSubstr("names bytes up to"));
  EXPECT_THAT(of_node(OpKind::sum, [](Op& op) { op.destination.place.region = Region::gradient; }),
              HasSubstr("writes to region gradient"));
  EXPECT_THAT(of_node(OpKind::land, [](Op& op) { std::swap(op.sources[0], op.sources[1]); }),
              HasSubstr("in the order of local ranks"));
  EXPECT_THAT(of_node(OpKind::sum, [](Op& op) { op.destination.dtype = DType::bfloat16; }),
              HasSubstr("not fp32"));
  EXPECT_THAT(of_node(OpKind::mark, [](Op& op) { op.milestone = Milestone::shard_read; }),
              HasSubstr("no milestone of this collective"));
  EXPECT_THAT(of_node(OpKind::signal, [](Op& op) { op.signal = 4; }),
              HasSubstr("uses signal 4, but 4 are in use"));
  EXPECT_THAT(of_node(OpKind::wait, [](Op& op) { op.after = {5}; }),
              HasSubstr("not an earlier one"));
  EXPECT_THAT(error_with(two_waves(), rail, OpKind::put, [](Op& op) { op.peer = 0; }),
              HasSubstr("has peer 0"));
  EXPECT_THAT(error_with(two_waves(), rail, OpKind::put,
                         [](Op& op) { op.sources[0].place.region = Region::output; }),
              HasSubstr("not this rank's arena"));
  EXPECT_THAT(of_node(OpKind::copy, [](Op& op) { op.sources[0].dtype = DType::float32; }),
              HasSubstr("narrows a gradient"));
}

}  // namespace
}  // namespace headrace
