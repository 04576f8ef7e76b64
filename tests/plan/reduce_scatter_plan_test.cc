// Reduce-scatter programs: proved by the checker over worlds and options, sized and counted.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <tuple>

#include "plan/address_map.h"
#include "plan/all_gather_plan.h"
#include "plan/all_gather_signals.h"
#include "plan/lockstep_memory.h"
#include "plan/reduce_scatter_worlds.h"
#include "support/sanitizers.h"

namespace headrace {
namespace {

std::string describe(const Topology& topology, const ReduceScatterOptions& options) {
  return fmt::format("{} x {}, W {}, k {}, {} passes, {}, {} slots, chunks of {} bytes",
                     topology.nodes(), topology.local_ranks(), options.wave_width,
                     options.transfers, options.passes, to_string(options.mode),
                     options.staging_slots, options.chunk_bytes);
}

void expect_proved(WorldSize size) {
  const Topology topology = Topology::make(size.nodes, size.local_ranks).value();
  for (const GroupSpec& group : {uneven_group(), tiny_group(), GroupSpec{.name = "empty"}}) {
    for (const ReduceScatterOptions& options : option_samples(topology, group)) {
      const auto collective = reduce_scatter_collective(topology, group, options);
      ASSERT_TRUE(collective) << describe(topology, options) << ": " << collective.error().message;
      const Status proved = schedule_check(topology, *collective);
      ASSERT_TRUE(proved) << group.name << ", " << describe(topology, options) << ": "
                          << proved.error().message;
    }
  }
}

class ReduceScatterPlanTest : public ::testing::TestWithParam<WorldSize> {};

TEST_P(ReduceScatterPlanTest, programs_are_proved_for_all_options) { expect_proved(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Worlds, ReduceScatterPlanTest,
                         ::testing::Values(WorldSize{1, 1}, WorldSize{1, 2}, WorldSize{1, 3},
                                           WorldSize{1, 8}, WorldSize{2, 1}, WorldSize{2, 2},
                                           WorldSize{3, 2}, WorldSize{4, 2}, WorldSize{5, 1},
                                           WorldSize{2, 4}, WorldSize{9, 2}, WorldSize{7, 3},
                                           WorldSize{5, 4}, WorldSize{9, 4}),
                         [](const auto& world) {
                           return fmt::format("{}x{}", world.param.nodes, world.param.local_ranks);
                         });

class ReduceScatterSweepTest : public ::testing::TestWithParam<int> {};

TEST_P(ReduceScatterSweepTest, every_wave_width_and_mode_is_proved_for_one_to_eight_local_ranks) {
  const GroupSpec group = uneven_group();
  for (int local_ranks = 1; local_ranks <= 8; ++local_ranks) {
    const Topology topology = Topology::make(GetParam(), local_ranks).value();
    for (const GradientMode mode : {GradientMode::in_place, GradientMode::slot_reuse}) {
      for (const int width : wave_widths(topology)) {
        if (topology.world_size() > 32 && width < local_ranks / 2) {
          continue;  // many narrow waves add time and no case that small worlds lack
        }
        ReduceScatterOptions options{.gradients = mixed_gradients(group)};
        options.wave_width = width;
        options.mode = mode;
        options.transfers = 1 + width % 4;
        const auto collective = reduce_scatter_collective(topology, group, options);
        ASSERT_TRUE(collective) << describe(topology, options) << ": "
                                << collective.error().message;
        const Status proved = schedule_check(topology, *collective);
        ASSERT_TRUE(proved) << describe(topology, options) << ": " << proved.error().message;
      }
    }
  }
}

// The checker has nothing to race with and no memory of its own to spoil: sanitizers see all of it
// in small worlds, and would take minutes for large ones.
constexpr int k_most_nodes = testing::k_sanitized ? 4 : 16;
INSTANTIATE_TEST_SUITE_P(Nodes, ReduceScatterSweepTest, ::testing::Range(1, k_most_nodes + 1));

std::vector<std::vector<std::size_t>> same_calls(const Topology& topology,
                                                 const std::vector<std::size_t>& turns) {
  return std::vector(static_cast<std::size_t>(topology.world_size()), turns);
}

TEST(ReduceScatterArenaTest, groups_of_different_sizes_passes_and_modes_take_turns) {
  for (const WorldSize size :
       {WorldSize{1, 3}, WorldSize{3, 1}, WorldSize{5, 2}, WorldSize{4, 4}}) {
    const Topology topology = Topology::make(size.nodes, size.local_ranks).value();
    for (const int width : wave_widths(topology)) {
      std::vector<Collective> collectives;
      for (const GroupSpec& group : {uneven_group(), tiny_group(), GroupSpec{.name = "empty"}}) {
        for (ReduceScatterOptions& options : option_samples(topology, group)) {
          options.first_signal = 0;
          options.wave_width = width;
          collectives.push_back(reduce_scatter_collective(topology, group, options).value());
        }
      }
      std::vector<std::size_t> turns;
      for (std::size_t turn = 0; turn < 3 * collectives.size(); ++turn) {
        turns.push_back(turn * 7 % collectives.size());
      }
      const Status proved = schedule_check(topology, collectives, same_calls(topology, turns));
      EXPECT_TRUE(proved) << size.nodes << " x " << size.local_ranks << ", W " << width << ": "
                          << proved.error().message;
    }
  }
}

TEST(ReduceScatterArenaTest, all_gathers_and_reduce_scatters_of_a_session_take_turns) {
  for (const WorldSize size : {WorldSize{1, 4}, WorldSize{3, 1}, WorldSize{5, 2}}) {
    const Topology topology = Topology::make(size.nodes, size.local_ranks).value();
    const GroupSpec group = uneven_group();
    const AllGatherOptions gather;
    Collective all_gather{.kind = CollectiveKind::all_gather,
                          .group = group,
                          .shape = all_gather_shape(topology, group, gather)};
    for (int rank = 0; rank < topology.world_size(); ++rank) {
      all_gather.programs.push_back(all_gather_program(topology, group, gather, rank));
    }
    const ReduceScatterOptions options{
        .gradients = mixed_gradients(group),
        .first_signal = static_cast<SignalId>(AllGatherSignals(topology).count())};
    const std::vector<Collective> collectives{
        all_gather, reduce_scatter_collective(topology, group, options).value()};
    const Status proved =
        schedule_check(topology, collectives, same_calls(topology, {0, 0, 1, 0, 1, 1, 0, 1}));
    EXPECT_TRUE(proved) << size.nodes << " x " << size.local_ranks << ": "
                        << proved.error().message;
  }
}

TEST(ReduceScatterArenaTest, wave_widths_do_not_mix_and_the_check_says_so) {
  const Topology topology = Topology::make(8, 2).value();
  const GroupSpec group = uneven_group();
  std::vector<Collective> collectives;
  for (const int width : {1, 2}) {
    collectives.push_back(
        reduce_scatter_collective(topology, group,
                                  {.gradients = mixed_gradients(group), .wave_width = width})
            .value());
  }
  EXPECT_FALSE(schedule_check(topology, collectives, same_calls(topology, {0, 1, 0, 1})));
}

/// Everything is used again and again: staging slots, outbox blocks, inbox generations.
Collective tight_collective(const Topology& topology, const GroupSpec& group, int passes,
                            GradientMode mode) {
  return reduce_scatter_collective(topology, group,
                                   {.gradients = mixed_gradients(group),
                                    .wave_width = topology.local_ranks() > 2 ? 2 : 1,
                                    .transfers = 1,
                                    .passes = passes,
                                    .mode = mode,
                                    .staging_slots = 1,
                                    .chunk_bytes = 300})
      .value();
}

/// Operations that guard the same thing. Taking a single guard away may do no harm, because others
/// happen to order the same two operations in a small world; all of them together are needed.
struct Guard {
  const char* name;
  std::function<bool(Op&)> remove;  ///< false where the operation is none of them
};

Guard wait_guard(const char* name, Lane lane, std::uint32_t calls_back, SignalId first,
                 SignalId end) {
  constexpr std::uint32_t k_before_any_call = 1000;
  return {.name = name, .remove = [=](Op& op) {
            if (op.kind != OpKind::wait || op.lane != lane || op.calls_back != calls_back ||
                op.signal < first || op.signal >= end) {
              return false;
            }
            op.count = 0;
            op.calls_back = k_before_any_call;
            return true;
          }};
}

Guard order_guard(const char* name, OpKind kind, Lane lane) {
  return {.name = name, .remove = [=](Op& op) {
            if (op.kind != kind || op.lane != lane || op.after.empty()) {
              return false;
            }
            op.after.clear();
            return true;
          }};
}

std::vector<Guard> guards(const Topology& topology, GradientMode mode) {
  const ReduceScatterSignals signals(topology, 0);
  std::vector<Guard> guards{
      wait_guard("pushed", Lane::local, 0, signals.pushed(0), signals.slot_free(0)),
      wait_guard("slot free", Lane::local, 0, signals.slot_free(0), signals.wave_whole(0)),
      wait_guard("slots of earlier calls free", Lane::local, 1, 0, signals.end()),
      wait_guard("wave whole", Lane::network, 0, signals.wave_whole(0), signals.wave_landed(0)),
      wait_guard("wave landed", Lane::complete, 0, signals.wave_landed(0), signals.arrived(0)),
      wait_guard("arrived", Lane::network, 0, signals.arrived(0), signals.inbox_free(0)),
      wait_guard("generation free", Lane::network, 0, signals.inbox_free(0), signals.end()),
      wait_guard("inbox of earlier calls free", Lane::network, 1, 0, signals.end()),
      order_guard("a put after its sum", OpKind::put, Lane::network),
      order_guard("a credit after the own landing",
                  topology.local_ranks() > 1 ? OpKind::wait : OpKind::credit, Lane::complete),
      order_guard("the end after the sums", OpKind::mark, Lane::complete),
      {.name = "zeros", .remove = [](Op& op) {
         const bool is_zero = op.kind == OpKind::zero;
         op.rows = is_zero ? 0 : op.rows;
         return is_zero;
       }}};
  if (mode == GradientMode::slot_reuse) {
    guards.push_back(order_guard("a sum after its block was sent", OpKind::sum, Lane::local));
  } else {
    // A partial outbox makes both of these come in order anyway.
    guards.push_back(wait_guard("banks", Lane::local, 2, 0, signals.end()));
    guards.push_back(order_guard("the own copy after its sum", OpKind::copy, Lane::network));
  }
  return guards;
}

class ReduceScatterFaultTest
    : public ::testing::TestWithParam<std::tuple<WorldSize, GradientMode>> {};

TEST_P(ReduceScatterFaultTest, nothing_that_guards_memory_can_be_left_out) {
  const auto [size, mode] = GetParam();
  const Topology topology = Topology::make(size.nodes, size.local_ranks).value();
  // A larger group shares the arena, so that places mean other things to it.
  GroupSpec larger = uneven_group();
  larger.parameters.push_back({.name = "more", .rows = 200, .row_elements = 5});
  const std::vector<Collective> sound{tight_collective(topology, uneven_group(), 3, mode),
                                      tight_collective(topology, larger, 1, mode)};
  const auto calls = same_calls(topology, {0, 0, 0, 1, 0, 1, 1, 0});
  const Status proved = schedule_check(topology, sound, calls);
  ASSERT_TRUE(proved) << proved.error().message;
  int found = 0;
  for (const Guard& guard : guards(topology, mode)) {
    std::vector<Collective> collectives = sound;
    int removed = 0;
    for (Collective& collective : collectives) {
      for (RankProgram& program : collective.programs) {
        for (Op& op : program.ops) {
          removed += guard.remove(op) ? 1 : 0;
        }
      }
    }
    if (removed > 0) {
      ++found;
      EXPECT_FALSE(schedule_check(topology, collectives, calls)) << guard.name;
    }
  }
  EXPECT_GE(found, 3);
}

std::string fault_name(const ::testing::TestParamInfo<ReduceScatterFaultTest::ParamType>& sample) {
  const auto& [size, mode] = sample.param;
  return fmt::format("{}x{}{}", size.nodes, size.local_ranks,
                     mode == GradientMode::in_place ? "in_place" : "slot_reuse");
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, ReduceScatterFaultTest,
    ::testing::Combine(::testing::Values(WorldSize{1, 3}, WorldSize{3, 1}, WorldSize{4, 1},
                                         WorldSize{2, 2}, WorldSize{4, 2}, WorldSize{9, 4}),
                       ::testing::Values(GradientMode::in_place, GradientMode::slot_reuse)),
    fault_name);

/// P parameters of which every rank has `block` elements.
GroupSpec even_group(const Topology& topology, int parameters, std::int64_t block) {
  GroupSpec group{.name = "even"};
  for (int parameter = 0; parameter < parameters; ++parameter) {
    group.parameters.push_back({.name = fmt::format("p{}", parameter),
                                .rows = topology.world_size(),
                                .row_elements = block,
                                .dtype = DType::bfloat16});
  }
  return group;
}

std::size_t count(const RankProgram& program, OpKind kind) {
  return static_cast<std::size_t>(std::count_if(program.ops.begin(), program.ops.end(),
                                                [kind](const Op& op) { return op.kind == kind; }));
}

TEST(ReduceScatterSizeTest, level_one_takes_one_copy_an_owner_parameter_and_node_and_short_tails) {
  constexpr std::size_t k_nodes = 64;
  constexpr std::size_t k_local_ranks = 8;
  constexpr std::size_t k_parameters = 30;
  const Topology topology = Topology::make(k_nodes, k_local_ranks).value();
  GroupSpec group = even_group(topology, k_parameters, 16384);
  const ReduceScatterOptions options{.gradients = {k_parameters, DType::bfloat16}};
  const auto copies = [&] {
    return count(reduce_scatter_program(topology, group, options, 77).value(), OpKind::copy) -
           1;  // the own node's partial
  };
  const std::size_t without_tails = copies();
  EXPECT_LE(without_tails, (k_local_ranks - 1) * k_parameters * k_nodes);

  // The last rank that has rows has a part of its block.
  for (ParameterSpec& parameter : group.parameters) {
    parameter.rows = 1'000'001;
    parameter.row_elements = 8;
  }
  EXPECT_LE(copies(), without_tails + (k_local_ranks - 1) * k_parameters);
}

TEST(ReduceScatterSizeTest, regions_are_as_large_as_predicted_and_within_the_bound) {
  for (const WorldSize size :
       {WorldSize{2, 8}, WorldSize{8, 8}, WorldSize{64, 8}, WorldSize{9, 4}}) {
    for (const GradientMode mode : {GradientMode::in_place, GradientMode::slot_reuse}) {
      for (const int passes : {1, 2}) {
        const Topology topology = Topology::make(size.nodes, size.local_ranks).value();
        const GroupSpec group = even_group(topology, 3, 1024);
        ReduceScatterOptions options{.gradients = {3, DType::bfloat16},
                                     .passes = passes,
                                     .mode = mode,
                                     .chunk_bytes = 1 << 30};
        const WavePlan waves = WavePlan::make(topology, {.width = size.local_ranks,
                                                         .transfers = options.transfers,
                                                         .passes = passes})
                                   .value();
        const LockstepMemory predicted =
            lockstep_memory(waves, {.shard_elements = std::size_t{3} * 1024,
                                    .staging_slots = options.staging_slots,
                                    .mode = mode})
                .value();
        const ScheduleShape whole = reduce_scatter_shape(topology, group, options).value();
        std::size_t bytes = 0;
        for (const Region region :
             {Region::staging, Region::outbox, Region::inbox, Region::spare}) {
          EXPECT_EQ(whole[region].total(), predicted[region].total())
              << describe(topology, options) << ": " << to_string(region);
          bytes += whole[region].total();
        }
        EXPECT_LE(bytes, predicted.reduce_scatter_bound) << describe(topology, options);

        options.chunk_bytes = 1024;
        const ScheduleShape chunked = reduce_scatter_shape(topology, group, options).value();
        EXPECT_EQ(chunked[Region::staging].total(),
                  static_cast<std::size_t>(options.staging_slots * (size.local_ranks - 1)) *
                      options.chunk_bytes);
        EXPECT_LT(chunked[Region::staging].total(), whole[Region::staging].total());
      }
    }
  }
}

TEST(ReduceScatterOptionsTest, wrong_options_are_errors) {
  const Topology topology = Topology::make(9, 8).value();
  const GroupSpec group = tiny_group();
  const ReduceScatterOptions sound{.gradients = {DType::float32}};
  EXPECT_TRUE(reduce_scatter_shape(topology, group, sound));
  const auto expect_error = [&](auto change) {
    ReduceScatterOptions options = sound;
    change(options);
    EXPECT_FALSE(reduce_scatter_shape(topology, group, options));
    EXPECT_FALSE(reduce_scatter_program(topology, group, options, 0));
  };
  expect_error([](auto& options) { options.gradients.clear(); });
  expect_error([](auto& options) { options.wave_width = 3; });  // collides
  expect_error([](auto& options) { options.wave_width = 9; });
  expect_error([](auto& options) { options.transfers = 0; });
  expect_error([](auto& options) { options.passes = 5; });
  expect_error([](auto& options) { options.passes = 0; });
  expect_error([](auto& options) { options.staging_slots = 0; });
  expect_error([](auto& options) { options.chunk_bytes = 0; });
}

TEST(PackedOutputTest, pieces_of_any_cut_cover_every_block_once_and_runs_hold_the_real_rows) {
  const GroupSpec group = uneven_group();
  for (const int world : {1, 2, 5, 16}) {
    const AddressMap map(group, world);
    const PackedOutput output(group, world);
    ASSERT_EQ(output.elements(), map.accumulator_bytes() / sizeof(float));
    for (const std::size_t cut : {1, 4, 20, 1000}) {
      // [parameter][rank]: elements of the block that runs have named so far, in order
      std::vector covered(group.parameters.size(),
                          std::vector<std::size_t>(static_cast<std::size_t>(world), 0));
      for (std::size_t begin = 0; begin < output.elements(); begin += cut) {
        const Stretch stretch{.begin = begin, .end = std::min(begin + cut, output.elements())};
        for (const PackedPiece& piece : output.pieces(stretch)) {
          ASSERT_EQ(piece.position * sizeof(float),
                    map.accumulator_offset(piece.parameter) + piece.first * sizeof(float));
          const std::vector<RankRun> runs = output.runs(piece, 0, world);
          ASSERT_LE(runs.size(), 2U);
          for (const RankRun& run : runs) {
            for (std::size_t i = 0; i < run.ranks; ++i) {
              const int rank = run.skipped + static_cast<int>(i);
              std::size_t& done = covered[piece.parameter][static_cast<std::size_t>(rank)];
              ASSERT_EQ(done, piece.first);
              ASSERT_EQ(output.gradient_element(piece, rank),
                        map.first_element(piece.parameter, rank) + done);
              done += run.elements;
            }
          }
        }
      }
      for (std::size_t parameter = 0; parameter < covered.size(); ++parameter) {
        for (int rank = 0; rank < world; ++rank) {
          EXPECT_EQ(covered[parameter][static_cast<std::size_t>(rank)],
                    map.shard_elements(parameter, rank));
        }
      }
    }
  }
}

TEST(SubSlicesTest, parts_are_aligned_disjoint_and_cover_the_output_in_the_same_sub_slices) {
  for (const std::size_t elements : {1, 4, 63, 64, 1000}) {
    for (const int local_ranks : {1, 3, 8}) {
      for (const int passes : {1, 2, 3, 4}) {
        const SubSlices slices(elements, local_ranks, passes);
        EXPECT_EQ(slices.capacity(), SubSlices(elements, local_ranks, 1).capacity());
        std::size_t next = 0;
        for (int sub_slice = 0; sub_slice < local_ranks; ++sub_slice) {
          for (int pass = 0; pass < passes; ++pass) {
            const Stretch part = slices.part(sub_slice, pass);
            if (part.elements() > 0) {
              EXPECT_EQ(part.begin, next);
              EXPECT_EQ(part.begin * sizeof(float) % 16, 0U);
              EXPECT_LE(part.elements(), slices.part_capacity());
              EXPECT_EQ(part.begin / slices.capacity(), static_cast<std::size_t>(sub_slice));
              next = part.end;
            }
          }
        }
        EXPECT_EQ(next, elements);
      }
    }
  }
}

}  // namespace
}  // namespace headrace
