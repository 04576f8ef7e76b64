#include "kernel/accumulate.h"

#include <gtest/gtest.h>

#include "kernel/support.h"

namespace headrace {
namespace {

using testing::element;
using testing::GuardedBytes;
using testing::same;

class AccumulateTest : public ::testing::TestWithParam<DType> {};

TEST_P(AccumulateTest, adds_each_element_with_every_isa) {
  const DType dtype = GetParam();
  for (const Isa isa : testing::available_isas()) {
    for (const std::size_t count : testing::awkward_counts()) {
      for (const int offset : testing::k_offsets) {
        // A float's own alignment holds for the destination; the source may start anywhere.
        GuardedBytes destination(count * 4, static_cast<std::size_t>(offset) / 4 * 4);
        GuardedBytes source(count * item_size(dtype), 63 - static_cast<std::size_t>(offset));
        testing::fill(destination, DType::float32, 1);
        testing::fill(source, dtype, 2);
        GuardedBytes expected(count * 4, 0);
        testing::fill(expected, DType::float32, 1);

        accumulate(reinterpret_cast<float*>(destination.data()), source.data(), dtype, count, isa);

        for (std::size_t i = 0; i < count; ++i) {
          const float sum = element(expected, DType::float32, i) + element(source, dtype, i);
          ASSERT_TRUE(same(element(destination, DType::float32, i), sum))
              << to_string(isa) << " count " << count << " offset " << offset << " element " << i;
        }
        ASSERT_TRUE(destination.guards_intact()) << to_string(isa) << " count " << count;
        ASSERT_TRUE(source.guards_intact());
      }
    }
  }
}

class WriteScaledTest : public ::testing::TestWithParam<std::tuple<DType, bool>> {};

TEST_P(WriteScaledTest, rounds_a_fused_multiply_add_once_with_every_isa) {
  const auto [dtype, add] = GetParam();
  for (const Isa isa : testing::available_isas()) {
    for (const float scale : {1.0F, 0.0F, -0.3F, 1.0F / 4096.0F}) {
      for (const std::size_t count : testing::awkward_counts()) {
        for (const int offset : testing::k_offsets) {
          GuardedBytes destination(count * item_size(dtype), static_cast<std::size_t>(offset));
          GuardedBytes before(count * item_size(dtype), 0);
          GuardedBytes source(count * 4, (63 - static_cast<std::size_t>(offset)) / 4 * 4);
          testing::fill(destination, dtype, 3);
          testing::fill(before, dtype, 3);
          testing::fill(source, DType::float32, 4);

          write_scaled(destination.data(), dtype, reinterpret_cast<const float*>(source.data()),
                       scale, count, add, isa);

          for (std::size_t i = 0; i < count; ++i) {
            const float value = element(source, DType::float32, i);
            const float exact =
                add ? std::fma(scale, value, element(before, dtype, i)) : scale * value;
            const float expected =
                dtype == DType::float32 ? exact : testing::nearest_bfloat16(exact);
            ASSERT_TRUE(same(element(destination, dtype, i), expected))
                << to_string(isa) << " scale " << scale << " count " << count << " offset "
                << offset << " element " << i;
          }
          ASSERT_TRUE(destination.guards_intact()) << to_string(isa) << " count " << count;
        }
      }
    }
  }
}

std::string dtype_name(const ::testing::TestParamInfo<DType>& info) {
  return to_string(info.param);
}

std::string write_name(const ::testing::TestParamInfo<std::tuple<DType, bool>>& info) {
  return std::string(to_string(std::get<0>(info.param))) +
         (std::get<1>(info.param) ? "_add" : "_set");
}

INSTANTIATE_TEST_SUITE_P(Sources, AccumulateTest,
                         ::testing::Values(DType::float32, DType::bfloat16), dtype_name);
INSTANTIATE_TEST_SUITE_P(Destinations, WriteScaledTest,
                         ::testing::Combine(::testing::Values(DType::float32, DType::bfloat16),
                                            ::testing::Bool()),
                         write_name);

}  // namespace
}  // namespace headrace
