// Reduce-scatter programs run on real floats: right sums, the same bits whatever is tuned, in any
// order that lanes and signals allow.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "plan/interpreter.h"
#include "plan/reduce_scatter_worlds.h"

namespace headrace {
namespace {

constexpr double k_tolerance = 1e-5;
constexpr float k_untouched = 12345.0F;

/// Standard-normal gradients of every rank, and the sums that they should give.
struct Sample {
  std::vector<std::vector<Bytes>> gradients;
  std::vector<std::vector<double>> sums;  ///< by parameter, of all ranks
};

Sample make_sample(const Topology& topology, const GroupSpec& group,
                   const std::vector<DType>& dtypes, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Sample sample;
  for (const ParameterSpec& parameter : group.parameters) {
    sample.sums.emplace_back(static_cast<std::size_t>(parameter.rows * parameter.row_elements));
  }
  for (int rank = 0; rank < topology.world_size(); ++rank) {
    std::vector<Bytes>& gradients = sample.gradients.emplace_back();
    for (std::size_t parameter = 0; parameter < dtypes.size(); ++parameter) {
      const std::size_t item = item_size(dtypes[parameter]);
      Bytes& bytes = gradients.emplace_back(sample.sums[parameter].size() * item);
      for (std::size_t element = 0; element < sample.sums[parameter].size(); ++element) {
        const auto bits = std::bit_cast<std::uint32_t>(normal(random));
        const std::uint32_t kept = item == 2 ? bits >> 16 : bits;
        std::memcpy(bytes.data() + element * item, &kept, item);
        sample.sums[parameter][element] += load(bytes.data() + element * item, dtypes[parameter]);
      }
    }
  }
  return sample;
}

std::vector<std::vector<float>> fresh_outputs(const Topology& topology, const GroupSpec& group) {
  const AddressMap map(group, topology.world_size());
  return std::vector(static_cast<std::size_t>(topology.world_size()),
                     std::vector<float>(map.accumulator_bytes() / sizeof(float), k_untouched));
}

/// Real rows hold alpha times the sum, on top of `before`; nothing else was touched.
void expect_sums(const Topology& topology, const GroupSpec& group, const Sample& sample,
                 double alpha, double before, const std::vector<std::vector<float>>& outputs) {
  const AddressMap map(group, topology.world_size());
  for (int rank = 0; rank < topology.world_size(); ++rank) {
    std::vector<float> rest = outputs[static_cast<std::size_t>(rank)];
    for (std::size_t parameter = 0; parameter < map.parameters(); ++parameter) {
      const std::size_t at = map.accumulator_offset(parameter) / sizeof(float);
      const std::size_t first = map.first_element(parameter, rank);
      for (std::size_t element = 0; element < map.shard_elements(parameter, rank); ++element) {
        const double expected = before + alpha * sample.sums[parameter][first + element];
        ASSERT_NEAR(rest[at + element], expected, k_tolerance * std::max(1.0, std::abs(expected)))
            << "rank " << rank << ", element " << element << " of parameter " << parameter;
        rest[at + element] = k_untouched;
      }
    }
    ASSERT_EQ(std::count(rest.begin(), rest.end(), k_untouched),
              static_cast<std::ptrdiff_t>(rest.size()))
        << "rank " << rank << ": pad rows or gaps were written";
  }
}

class ReduceScatterValuesTest : public ::testing::TestWithParam<WorldSize> {
 protected:
  Topology topology_ = Topology::make(GetParam().nodes, GetParam().local_ranks).value();
};

TEST_P(ReduceScatterValuesTest, three_calls_in_a_row_sum_the_gradients_of_all_ranks) {
  constexpr float k_alpha = 0.375F;
  for (const GroupSpec& group : {uneven_group(), tiny_group()}) {
    for (const ReduceScatterOptions& options : option_samples(topology_, group)) {
      const Collective collective = reduce_scatter_collective(topology_, group, options).value();
      for (const unsigned seed : {0U, 1U, 2U}) {
        std::vector<Sample> samples;
        std::vector<ReduceScatterCall> calls;
        for (unsigned call = 0; call < 3; ++call) {
          samples.push_back(make_sample(topology_, group, options.gradients, 10 * seed + call));
          calls.push_back({.collective = &collective,
                           .alpha = k_alpha,
                           .accumulate = call == 1,
                           .gradients = samples.back().gradients,
                           .outputs = fresh_outputs(topology_, group)});
        }
        ASSERT_TRUE(Interpreter(topology_, calls, seed).run()) << "waits for ever, seed " << seed;
        for (std::size_t call = 0; call < calls.size(); ++call) {
          expect_sums(topology_, group, samples[call], k_alpha,
                      calls[call].accumulate ? k_untouched : 0.0, calls[call].outputs);
        }
      }
    }
  }
}

TEST_P(ReduceScatterValuesTest, bits_do_not_depend_on_what_is_tuned) {
  const GroupSpec group = uneven_group();
  const std::vector<DType> dtypes = mixed_gradients(group);
  const Sample sample = make_sample(topology_, group, dtypes, 7);
  std::vector<std::vector<float>> reference;
  for (const std::size_t chunk_bytes : {1, 200, 1 << 20}) {
    for (const int passes : {1, 2, 3, 4}) {
      for (const GradientMode mode : {GradientMode::in_place, GradientMode::slot_reuse}) {
        const ReduceScatterOptions options{.gradients = dtypes,
                                           .transfers = passes,
                                           .passes = passes,
                                           .mode = mode,
                                           .staging_slots = 1 + passes % 3,
                                           .chunk_bytes = chunk_bytes};
        const Collective collective = reduce_scatter_collective(topology_, group, options).value();
        std::vector<ReduceScatterCall> calls{{.collective = &collective,
                                              .alpha = 0.3F,
                                              .gradients = sample.gradients,
                                              .outputs = fresh_outputs(topology_, group)}};
        ASSERT_TRUE(Interpreter(topology_, calls, static_cast<unsigned>(passes)).run());
        if (reference.empty()) {
          reference = calls[0].outputs;
        }
        ASSERT_EQ(calls[0].outputs, reference)
            << passes << " passes, chunks of " << chunk_bytes << ", " << to_string(mode);
      }
    }
  }
}

TEST(ReduceScatterLargeWorldTest, sixteen_nodes_of_eight_ranks) {
  const Topology topology = Topology::make(16, 8).value();
  const GroupSpec group = uneven_group();
  const ReduceScatterOptions options{
      .gradients = mixed_gradients(group), .passes = 2, .mode = GradientMode::slot_reuse};
  const Collective collective = reduce_scatter_collective(topology, group, options).value();
  const Status proved = schedule_check(topology, collective);
  ASSERT_TRUE(proved) << proved.error().message;
  std::vector<Sample> samples;
  std::vector<ReduceScatterCall> calls;
  for (unsigned call = 0; call < 2; ++call) {
    samples.push_back(make_sample(topology, group, options.gradients, call));
    calls.push_back({.collective = &collective,
                     .gradients = samples.back().gradients,
                     .outputs = fresh_outputs(topology, group)});
  }
  ASSERT_TRUE(Interpreter(topology, calls, 0).run());
  for (std::size_t call = 0; call < calls.size(); ++call) {
    expect_sums(topology, group, samples[call], 1.0, 0.0, calls[call].outputs);
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, ReduceScatterValuesTest,
                         ::testing::Values(WorldSize{1, 1}, WorldSize{1, 2}, WorldSize{1, 4},
                                           WorldSize{1, 8}, WorldSize{2, 1}, WorldSize{2, 2},
                                           WorldSize{3, 2}, WorldSize{4, 2}, WorldSize{5, 1},
                                           WorldSize{2, 4}, WorldSize{9, 2}, WorldSize{9, 4}),
                         [](const auto& world) {
                           return fmt::format("{}x{}", world.param.nodes, world.param.local_ranks);
                         });

}  // namespace
}  // namespace headrace
