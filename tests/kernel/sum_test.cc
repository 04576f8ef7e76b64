#include "kernel/sum.h"

#include <gtest/gtest.h>

#include "kernel/copy.h"
#include "kernel/support.h"

namespace headrace {
namespace {

using testing::element;
using testing::GuardedBytes;
using testing::same;

std::vector<std::vector<DType>> mixes() {
  const DType half = DType::bfloat16;
  const DType full = DType::float32;
  return {{half}, {full}, {half, half}, {full, full, full}, {half, full, half}, {full, half}};
}

TEST(SumTest, adds_in_the_order_of_the_sources_with_every_isa) {
  for (const Isa isa : testing::available_isas()) {
    for (const std::vector<DType>& dtypes : mixes()) {
      for (const bool add : {false, true}) {
        for (const float scale : {1.0F, -0.3F}) {
          for (const std::size_t count : testing::awkward_counts()) {
            GuardedBytes destination(count * 4, count % 16 * 4);
            GuardedBytes before(count * 4, 0);
            testing::fill(destination, DType::float32, 9);
            testing::fill(before, DType::float32, 9);
            std::vector<GuardedBytes> bytes;
            std::vector<Summand> sources;
            bytes.reserve(dtypes.size());
            for (std::size_t s = 0; s < dtypes.size(); ++s) {
              bytes.emplace_back(count * item_size(dtypes[s]), 7 * s + 1);
              testing::fill(bytes.back(), dtypes[s], static_cast<int>(s));
              sources.push_back({bytes.back().data(), dtypes[s]});
            }

            sum(reinterpret_cast<float*>(destination.data()), sources, count, scale, add, isa);

            for (std::size_t i = 0; i < count; ++i) {
              float total = element(bytes[0], dtypes[0], i);
              for (std::size_t s = 1; s < dtypes.size(); ++s) {
                total += element(bytes[s], dtypes[s], i);
              }
              const float expected =
                  add ? std::fma(scale, total, element(before, DType::float32, i)) : scale * total;
              ASSERT_TRUE(same(element(destination, DType::float32, i), expected))
                  << to_string(isa) << " " << dtypes.size() << " sources, count " << count
                  << " element " << i;
            }
            ASSERT_TRUE(destination.guards_intact());
          }
        }
      }
    }
  }
}

TEST(SumTest, cutting_a_range_changes_no_bit) {
  const std::size_t count = 3 * k_streaming_threshold / sizeof(float) + 5;
  GuardedBytes first(count * 2, 2);
  GuardedBytes second(count * 4, 4);
  testing::fill(first, DType::bfloat16, 1);
  testing::fill(second, DType::float32, 2);
  for (const Isa isa : testing::available_isas()) {
    std::vector<float> whole(count);
    std::vector<float> cut(count);
    const auto run = [&](std::vector<float>& to, std::size_t begin, std::size_t end) {
      const Summand sources[] = {{first.data() + begin * 2, DType::bfloat16},
                                 {second.data() + begin * 4, DType::float32}};
      sum(to.data() + begin, sources, end - begin, 0.7F, false, isa);
    };
    run(whole, 0, count);
    for (std::size_t at = 0; at < count; at += 1001) {
      run(cut, at, std::min(count, at + 1001));
    }
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_TRUE(same(whole[i], cut[i])) << to_string(isa) << " element " << i;
    }
  }
}

TEST(SumTest, no_source_gives_zeros) {
  std::vector<float> destination(5, 3.0F);
  sum(destination.data(), {}, 5, 2.0F, true);
  EXPECT_EQ(destination, std::vector<float>(5, 3.0F));
  sum(destination.data(), {}, 5, 2.0F, false);
  EXPECT_EQ(destination, std::vector<float>(5, 0.0F));
}

}  // namespace
}  // namespace headrace
