#include "kernel/cast.h"

#include <gtest/gtest.h>

#include "kernel/support.h"

namespace headrace {
namespace {

using testing::element;
using testing::GuardedBytes;
using testing::same;

// Patterns that no arithmetic reaches: every sign, exponent and rounding situation.
std::vector<std::uint32_t> random_patterns(std::size_t count) {
  std::mt19937 random(7);
  std::vector<std::uint32_t> patterns(count);
  for (std::uint32_t& pattern : patterns) {
    pattern = static_cast<std::uint32_t>(random());
    switch (random() % 4) {
      case 0:  // a tie
        pattern = (pattern & 0xFFFF0000U) | 0x8000U;
        break;
      case 1:  // a denormal
        pattern &= 0x807FFFFFU;
        break;
      default:
        break;
    }
  }
  return patterns;
}

TEST(CastTest, every_bfloat16_survives_fp32_and_back) {
  constexpr std::size_t k_patterns = 65536;
  std::vector<std::uint16_t> all(k_patterns);
  for (std::size_t i = 0; i < k_patterns; ++i) {
    all[i] = static_cast<std::uint16_t>(i);
  }
  for (const Isa isa : testing::available_isas()) {
    std::vector<float> wide(k_patterns);
    std::vector<std::uint16_t> back(k_patterns);
    cast(wide.data(), DType::float32, all.data(), DType::bfloat16, k_patterns, isa);
    cast(back.data(), DType::bfloat16, wide.data(), DType::float32, k_patterns, isa);
    for (std::size_t i = 0; i < k_patterns; ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), static_cast<std::uint32_t>(all[i]) << 16)
          << to_string(isa);
      const bool signalling = std::isnan(wide[i]) && (all[i] & 0x40U) == 0;
      ASSERT_EQ(back[i], signalling ? all[i] | 0x40U : all[i]) << to_string(isa);
    }
  }
}

TEST(CastTest, fp32_rounds_to_the_nearest_bfloat16) {
  const std::vector<std::uint32_t> patterns = random_patterns(1 << 18);
  for (const Isa isa : testing::available_isas()) {
    std::vector<std::uint16_t> rounded(patterns.size());
    cast(rounded.data(), DType::bfloat16, patterns.data(), DType::float32, patterns.size(), isa);
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      const float expected = testing::nearest_bfloat16(std::bit_cast<float>(patterns[i]));
      const float got = std::bit_cast<float>(static_cast<std::uint32_t>(rounded[i]) << 16);
      ASSERT_TRUE(same(got, expected)) << to_string(isa) << " pattern " << std::hex << patterns[i];
    }
  }
}

TEST(CastTest, every_isa_gives_the_same_nan_payload) {
  const std::vector<std::uint32_t> nans = {0x7F800001U, 0x7F80FFFFU, 0x7FC12345U, 0xFF812345U,
                                           0xFFFFFFFFU, 0x7FBFFFFFU, 0xFF800001U, 0x7FFF8000U};
  // Long enough for one vector of the widest set.
  std::vector<std::uint32_t> source;
  for (int repeat = 0; repeat < 5; ++repeat) {
    source.insert(source.end(), nans.begin(), nans.end());
  }
  std::vector<std::uint16_t> reference(source.size());
  cast(reference.data(), DType::bfloat16, source.data(), DType::float32, source.size(),
       Isa::scalar);
  for (const Isa isa : testing::available_isas()) {
    std::vector<std::uint16_t> got(source.size());
    cast(got.data(), DType::bfloat16, source.data(), DType::float32, source.size(), isa);
    EXPECT_EQ(got, reference) << to_string(isa);
  }
}

class CastPairTest : public ::testing::TestWithParam<std::tuple<DType, DType>> {};

TEST_P(CastPairTest, converts_any_count_at_any_address) {
  const auto [to, from] = GetParam();
  for (const Isa isa : testing::available_isas()) {
    for (const std::size_t count : testing::awkward_counts()) {
      for (const int offset : testing::k_offsets) {
        GuardedBytes destination(count * item_size(to), static_cast<std::size_t>(offset));
        GuardedBytes source(count * item_size(from), 63 - static_cast<std::size_t>(offset));
        testing::fill(source, from, 5);

        cast(destination.data(), to, source.data(), from, count, isa);

        for (std::size_t i = 0; i < count; ++i) {
          const float value = element(source, from, i);
          const float expected = to == DType::bfloat16 ? testing::nearest_bfloat16(value) : value;
          ASSERT_TRUE(same(element(destination, to, i), expected))
              << to_string(isa) << " count " << count << " offset " << offset << " element " << i;
        }
        ASSERT_TRUE(destination.guards_intact()) << to_string(isa) << " count " << count;
        ASSERT_TRUE(source.guards_intact());
      }
    }
  }
}

std::string pair_name(const ::testing::TestParamInfo<std::tuple<DType, DType>>& info) {
  return std::string(to_string(std::get<1>(info.param))) + "_to_" +
         to_string(std::get<0>(info.param));
}

INSTANTIATE_TEST_SUITE_P(All, CastPairTest,
                         ::testing::Combine(::testing::Values(DType::float32, DType::bfloat16),
                                            ::testing::Values(DType::float32, DType::bfloat16)),
                         pair_name);

}  // namespace
}  // namespace headrace
