#include "kernel/tiles.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace headrace {
namespace {

constexpr unsigned k_group = 8;

TEST(TilesTest, the_parts_of_all_groups_are_the_row_each_element_once) {
  for (std::size_t lead = 0; lead < k_group; ++lead) {
    for (std::size_t count = 0; count < 5 * k_group; ++count) {
      const GroupedRow row = {lead, lead + count};
      std::vector<int> touched(8 * k_group, 0);
      const std::size_t groups = groups_of<k_group>(row);
      // Two groups more than there are: they have no part.
      for (std::size_t group = 0; group < groups + 2; ++group) {
        const Part part = part_of<k_group>(row, group);
        ASSERT_LE(part.begin, part.end);
        ASSERT_LE(part.end, k_group);
        ASSERT_TRUE(group < groups || part.begin == part.end);
        ASSERT_EQ(all_whole<k_group>(row, group, 1), part.end - part.begin == k_group)
            << "lead " << lead << " count " << count << " group " << group;
        for (unsigned i = part.begin; i < part.end; ++i) {
          ++touched[group * k_group + i];
        }
      }
      for (std::size_t e = 0; e < touched.size(); ++e) {
        ASSERT_EQ(touched[e], e >= lead && e < lead + count ? 1 : 0)
            << "lead " << lead << " count " << count << " element " << e;
      }
    }
  }
}

TEST(TilesTest, several_groups_are_whole_when_each_is) {
  for (std::size_t lead = 0; lead < k_group; ++lead) {
    const GroupedRow row = {lead, lead + 61};
    for (std::size_t first = 0; first < 10; ++first) {
      for (std::size_t groups = 1; groups < 6; ++groups) {
        bool each = true;
        for (std::size_t group = first; group < first + groups; ++group) {
          each = each && all_whole<k_group>(row, group, 1);
        }
        ASSERT_EQ(all_whole<k_group>(row, first, groups), each);
      }
    }
  }
}

TEST(TilesTest, the_width_divides_every_groups_address) {
  for (std::uintptr_t address = 4096; address < 4096 + 64; address += 2) {
    for (const std::size_t item : {1U, 2U, 4U}) {
      for (const std::size_t pitch : {0U, 2U, 20U, 24U, 32U}) {
        for (std::size_t lead = 0; lead < k_group; ++lead) {
          const Operand operand = {nullptr, item, pitch};
          const unsigned width = access_width(address, operand, lead, k_group);
          ASSERT_GE(width, 1U);
          ASSERT_LE(width, k_vector_bytes);
          bool twice_as_wide = 2 * width <= k_vector_bytes;
          for (std::size_t row = 0; row < 3; ++row) {
            for (std::size_t group = 0; group < 3; ++group) {
              const std::uintptr_t at =
                  address - lead * item + row * pitch + group * k_group * item;
              ASSERT_EQ(at % width, 0U);
              twice_as_wide = twice_as_wide && at % (2UL * width) == 0;
            }
          }
          ASSERT_FALSE(twice_as_wide) << "a wider access would do";
        }
      }
    }
  }
}

Operand at(std::uintptr_t address, std::size_t item) {
  return {reinterpret_cast<const void*>(address), item, 0};
}

TEST(TilesTest, the_best_lead_gives_full_vectors_to_operands_that_are_aligned_alike) {
  for (std::uintptr_t past = 0; past < k_group; ++past) {
    const Operand operands[] = {at(4096 + 4 * past, 4), at(8192 + 2 * past, 2)};
    const std::size_t lead = best_lead(operands, k_group);
    for (const Operand& operand : operands) {
      const Access taken = access(operand, lead, k_group);
      EXPECT_TRUE(taken.full) << past << " elements past";
      EXPECT_EQ(taken.base % k_vector_bytes, 0U);
    }
  }
}

TEST(TilesTest, where_no_lead_aligns_all_the_best_one_favours_the_many) {
  // One element past a multiple of 16 bytes: three operands of bf16, against one of fp32 at one.
  const Operand operands[] = {at(4096, 4), at(8192 + 2, 2), at(9216 + 2, 2), at(10240 + 2, 2)};
  const std::size_t lead = best_lead(operands, k_group);
  EXPECT_FALSE(access(operands[0], lead, k_group).full);
  for (const Operand& operand : std::span(operands).subspan(1)) {
    EXPECT_TRUE(access(operand, lead, k_group).full);
  }
}

}  // namespace
}  // namespace headrace
