// Reduce-scatter programs: proved by the checker over worlds and options, sized and counted.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "plan/address_map.h"
#include "plan/lockstep_memory.h"
#include "plan/reduce_scatter_worlds.h"

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
                                           WorldSize{5, 4}),
                         [](const auto& world) {
                           return fmt::format("{}x{}", world.param.nodes, world.param.local_ranks);
                         });

/// Alternating uses of one arena by groups of different sizes and waves.
TEST(ReduceScatterArenaTest, groups_of_different_sizes_and_waves_take_turns) {
  for (const WorldSize size : {WorldSize{1, 3}, WorldSize{3, 1}, WorldSize{5, 2}, WorldSize{4, 4}}) {
    const Topology topology = Topology::make(size.nodes, size.local_ranks).value();
    std::vector<Collective> collectives;
    for (const GroupSpec& group : {uneven_group(), tiny_group(), GroupSpec{.name = "empty"}}) {
      for (ReduceScatterOptions& options : option_samples(topology, group)) {
        options.first_signal = 0;
        collectives.push_back(reduce_scatter_collective(topology, group, options).value());
      }
    }
    std::vector<std::size_t> turns;
    for (std::size_t turn = 0; turn < 3 * collectives.size(); ++turn) {
      turns.push_back(turn * 7 % collectives.size());
    }
    const std::vector calls(static_cast<std::size_t>(topology.world_size()), turns);
    const Status proved = schedule_check(topology, collectives, calls);
    EXPECT_TRUE(proved) << size.nodes << " x " << size.local_ranks << ": "
                        << proved.error().message;
  }
}

/// Everything is used again and again: staging slots, outbox blocks, inbox generations.
Collective tight_collective(const Topology& topology, GradientMode mode) {
  const GroupSpec group = uneven_group();
  return reduce_scatter_collective(topology, group,
                                   {.gradients = mixed_gradients(group),
                                    .wave_width = topology.local_ranks() > 2 ? 2 : 1,
                                    .transfers = 1,
                                    .passes = 3,
                                    .mode = mode,
                                    .staging_slots = 1,
                                    .chunk_bytes = 300})
      .value();
}

/// Whether an earlier operation of the lane comes after the same or a later one than the edge says.
bool is_implied(const std::vector<Op>& ops, std::size_t position, std::uint32_t before) {
  for (std::size_t earlier = 0; earlier < position; ++earlier) {
    for (const std::uint32_t edge : ops[earlier].after) {
      if (ops[earlier].lane == ops[position].lane && edge >= before &&
          ops[edge].lane == ops[before].lane) {
        return true;
      }
    }
  }
  return false;
}

class ReduceScatterFaultTest
    : public ::testing::TestWithParam<std::tuple<WorldSize, GradientMode>> {};

TEST_P(ReduceScatterFaultTest, each_dropped_wait_order_and_zero_is_found) {
  constexpr std::size_t k_calls = 4;
  constexpr std::uint32_t k_never = 1000;  // calls back
  const auto [size, mode] = GetParam();
  const Topology topology = Topology::make(size.nodes, size.local_ranks).value();
  Collective collective = tight_collective(topology, mode);
  ASSERT_TRUE(schedule_check(topology, collective, k_calls));
  for (RankProgram* program : {&collective.programs.front(), &collective.programs.back()}) {
    const std::vector<Op> sound = program->ops;
    const auto expect_found = [&](std::size_t position, const std::string& fault) {
      EXPECT_FALSE(schedule_check(topology, collective, k_calls))
          << fault << " of operation " << position << " (" << to_string(sound[position].kind)
          << ", lane " << to_string(sound[position].lane) << ", signal " << sound[position].signal
          << ", count " << sound[position].count << ")";
      program->ops[position] = sound[position];
    };
    for (std::size_t position = 0; position < sound.size(); ++position) {
      Op& op = program->ops[position];
      // With a partial outbox the read phase follows the network phase of the call before anyway.
      const bool is_bank_wait = op.kind == OpKind::wait && op.calls_back == 2;
      if (op.kind == OpKind::wait && !(is_bank_wait && mode == GradientMode::slot_reuse)) {
        op.count = 0;
        op.calls_back = k_never;
        expect_found(position, "the wait");
      }
      if (op.kind == OpKind::zero) {
        op.rows = 0;
        expect_found(position, "the zero");
      }
      for (std::size_t edge = 0; edge < sound[position].after.size(); ++edge) {
        if (!is_implied(sound, position, sound[position].after[edge])) {
          op.after.erase(op.after.begin() + static_cast<std::ptrdiff_t>(edge));
          expect_found(position, fmt::format("order {}", edge));
        }
      }
    }
  }
}

std::string fault_name(
    const ::testing::TestParamInfo<ReduceScatterFaultTest::ParamType>& sample) {
  const auto& [size, mode] = sample.param;
  return fmt::format("{}x{}{}", size.nodes, size.local_ranks,
                     mode == GradientMode::in_place ? "in_place" : "slot_reuse");
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, ReduceScatterFaultTest,
    ::testing::Combine(::testing::Values(WorldSize{1, 3}, WorldSize{2, 1}, WorldSize{4, 1},
                                         WorldSize{2, 2}, WorldSize{4, 2}, WorldSize{6, 4}),
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
  for (const WorldSize size : {WorldSize{2, 8}, WorldSize{8, 8}, WorldSize{64, 8}, WorldSize{9, 4}}) {
    for (const GradientMode mode : {GradientMode::in_place, GradientMode::slot_reuse}) {
      for (const int passes : {1, 2}) {
        const Topology topology = Topology::make(size.nodes, size.local_ranks).value();
        const GroupSpec group = even_group(topology, 3, 1024);
        ReduceScatterOptions options{.gradients = {3, DType::bfloat16},
                                     .passes = passes,
                                     .mode = mode,
                                     .chunk_bytes = 1 << 30};
        const WavePlan waves =
            WavePlan::make(topology, {.width = size.local_ranks,
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

        options.chunk_bytes = 4096;
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
          ASSERT_EQ(piece.position * sizeof(float), map.accumulator_offset(piece.parameter) +
                                                        piece.first * sizeof(float));
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
