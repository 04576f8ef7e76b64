#include "replay/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replay/machine.h"

namespace headrace::replay {
namespace {

using ::testing::HasSubstr;

TEST(Decoder, has_a_root_and_a_group_a_layer) {
  const Decoder decoder = parse_decoder("1.5B").value();
  const ModelSpec model = decoder_spec(decoder.shape, 1);
  ASSERT_EQ(model.groups.size(), 29U);
  EXPECT_EQ(model.groups[k_root].name, "root");
  EXPECT_EQ(model.groups[28].name, "layer27");
  EXPECT_NEAR(elements(model), 1.78e9, 0.01e9);  // Qwen2 1.5B with an output projection of its own
  EXPECT_NEAR(elements(decoder_spec(parse_decoder("7B").value().shape, 1)), 7.62e9, 0.01e9);
}

TEST(Decoder, shrinks_in_bytes_by_the_square_of_the_factor_and_keeps_its_layers) {
  const ModelShape shape = parse_decoder("1.5B").value().shape;
  const ModelSpec full = decoder_spec(shape, 1);
  const ModelSpec small = decoder_spec(shape, 10);
  EXPECT_EQ(small.groups.size(), full.groups.size());
  EXPECT_NEAR(elements(full) / elements(small), 100, 2);
  for (const GroupSpec& group : decoder_spec(shape, 1e6).groups) {
    for (const ParameterSpec& parameter : group.parameters) {
      EXPECT_EQ(parameter.rows * parameter.row_elements, 1) << parameter.name;
    }
  }
}

TEST(Decoder, an_unknown_model_is_an_error_that_names_it) {
  const auto decoder = parse_decoder("2B");
  ASSERT_FALSE(decoder);
  EXPECT_THAT(decoder.error().message, HasSubstr("2B"));
}

TEST(Machine, communication_takes_its_bytes_over_its_rate) {
  const ModelSpec model = decoder_spec(parse_decoder("1.5B").value().shape, 1);
  const double layers = elements(model) - elements(model.groups[k_root]);
  const double root = elements(model.groups[k_root]);
  // Layers gathered twice and reduced once, the root gathered and reduced once; bf16; 7 of 8 parts.
  const double bytes = 2 * (3 * layers + 2 * root) * 7 / 8;
  EXPECT_NEAR(link_bytes(model, 8), bytes, 1);
  const Machine h200 = machine("h200").value();
  EXPECT_NEAR(communication_seconds(h200, model, 8), bytes / h200.bytes_per_second, 1e-9);
}

TEST(Machine, a_published_fit_takes_as_long_as_the_shapes_operations_on_the_reference) {
  const Decoder decoder = parse_decoder("1.5B").value();
  const Machine h200 = machine("h200").value();
  const double unit = seconds_a_cost(h200, decoder.cost, decoder.shape).value();
  const CostModel operations = CostModel::from_shape(decoder.shape).value();
  EXPECT_NEAR(unit * decoder.cost.sample(k_reference_tokens),
              operations.sample(k_reference_tokens) / h200.flops, 1e-9);
}

TEST(Machine, an_unknown_one_is_an_error_that_lists_those_known) {
  const auto found = machine("b300");
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().message, HasSubstr("h200, h200-rail, a100, a100-rail"));
}

}  // namespace
}  // namespace headrace::replay
