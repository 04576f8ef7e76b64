#include "plan/slot_plan.h"

#include <gtest/gtest.h>

#include <array>

namespace headrace {
namespace {

constexpr std::array k_residencies{Residency::ring, Residency::stays, Residency::root};

// The decoder of a user: the root, then blocks, the last of which is not resharded after forward.
std::vector<SlotGroup> decoder(std::size_t blocks) {
  std::vector<SlotGroup> groups{{.name = "root", .bytes = 1000, .residency = Residency::root}};
  for (std::size_t block = 0; block < blocks; ++block) {
    groups.push_back({.name = "layers." + std::to_string(block),
                      .bytes = 100 + block,
                      .residency = block + 1 == blocks ? Residency::stays : Residency::ring});
  }
  return groups;
}

TEST(SlotPlanTest, blocks_alternate_the_last_one_is_folded_in_and_the_root_owns_its_slot) {
  const SlotPlan plan = SlotPlan::make(decoder(4)).value();
  for (std::size_t block = 0; block < 4; ++block) {
    EXPECT_EQ(plan.slot_of(1 + block), block % 2);
    EXPECT_TRUE(plan.in_ring(1 + block));
  }
  EXPECT_FALSE(plan.in_ring(0));
  EXPECT_EQ(plan.slots(), (std::vector<LandingSlot>{{.bytes = 102, .in_ring = true},
                                                    {.bytes = 103, .in_ring = true},
                                                    {.bytes = 1000, .in_ring = false}}));
  EXPECT_EQ(plan.bytes(), 1205U) << "each slot as large as its own groups, not the largest of all";
}

TEST(SlotPlanTest, a_group_that_stays_before_the_last_owns_its_slot_and_the_ring_goes_on) {
  std::vector<SlotGroup> groups = decoder(5);
  groups[2].residency = Residency::stays;
  const SlotPlan plan = SlotPlan::make(groups).value();
  EXPECT_FALSE(plan.in_ring(2));
  EXPECT_EQ(plan.slot_of(1), 0U);
  EXPECT_EQ(plan.slot_of(3), 1U) << "follows group 1 in the ring";
  EXPECT_EQ(plan.slot_of(4), 0U);
}

TEST(SlotPlanTest, a_root_that_runs_last_is_not_folded) {
  const SlotPlan plan = SlotPlan::make({{.name = "block", .bytes = 1},
                                        {.name = "root", .bytes = 2, .residency = Residency::root}})
                            .value();
  EXPECT_FALSE(plan.in_ring(1));
}

// All models of up to 6 groups: who may share a slot, and how large it is.
TEST(SlotPlanTest, only_groups_that_are_never_live_together_share_a_slot) {
  for (std::size_t count = 1, models = 3; count <= 6; ++count, models *= 3) {
    for (std::size_t model = 0; model < models; ++model) {
      std::vector<SlotGroup> groups;
      for (std::size_t group = 0, digits = model; group < count; ++group, digits /= 3) {
        groups.push_back({.name = std::to_string(group),
                          .bytes = (group * 7) % 5 + 1,
                          .residency = k_residencies[digits % 3]});
      }
      for (std::size_t ring_slots = 1; ring_slots <= 4; ++ring_slots) {
        const SlotPlan plan = SlotPlan::make(groups, {.ring_slots = ring_slots}).value();
        std::vector<std::size_t> ring;
        std::vector<std::size_t> largest(plan.slots().size(), 0);
        std::vector<std::size_t> users(plan.slots().size(), 0);
        for (std::size_t group = 0; group < count; ++group) {
          const std::size_t slot = plan.slot_of(group);
          largest[slot] = std::max(largest[slot], groups[group].bytes);
          ++users[slot];
          if (plan.in_ring(group)) {
            ring.push_back(group);
          }
          const bool is_last_to_stay =
              group + 1 == count && groups[group].residency == Residency::stays;
          ASSERT_EQ(plan.in_ring(group),
                    groups[group].residency == Residency::ring || is_last_to_stay);
        }
        for (std::size_t slot = 0; slot < plan.slots().size(); ++slot) {
          ASSERT_GE(users[slot], 1U);
          ASSERT_EQ(plan.slots()[slot].bytes, largest[slot]);
          ASSERT_TRUE(users[slot] == 1 || plan.slots()[slot].in_ring);
        }
        for (std::size_t first = 0; first < ring.size(); ++first) {
          const std::size_t end = std::min(first + ring_slots, ring.size());
          const std::vector<std::size_t> window(ring.begin() + static_cast<std::ptrdiff_t>(first),
                                                ring.begin() + static_cast<std::ptrdiff_t>(end));
          ASSERT_TRUE(plan.check_together(window));
          if (end < ring.size()) {
            std::vector<std::size_t> too_many = window;
            too_many.push_back(ring[end]);
            ASSERT_FALSE(plan.check_together(too_many));
          }
        }
      }
    }
  }
}

TEST(SlotPlanTest, more_groups_at_once_than_the_ring_holds_is_an_error_that_names_both) {
  const auto together = [](const SlotPlan& plan, std::vector<std::size_t> groups) {
    return plan.check_together(groups);
  };
  const SlotPlan plan = SlotPlan::make(decoder(4)).value();
  EXPECT_TRUE(together(plan, {0, 1, 2}));
  const Status status = together(plan, {0, 1, 2, 3});
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("layers.0 and layers.2"), std::string::npos)
      << status.error().message;
  EXPECT_TRUE(together(SlotPlan::make(decoder(4), {.ring_slots = 3}).value(), {0, 1, 2, 3}));
}

TEST(SlotPlanTest, no_groups_or_no_ring_is_refused) {
  EXPECT_FALSE(SlotPlan::make({}));
  EXPECT_FALSE(SlotPlan::make(decoder(2), {.ring_slots = 0}));
}

}  // namespace
}  // namespace headrace
