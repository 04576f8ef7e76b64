// Landings that the engine owns: who may write and who may read, and when.

#include "collective/landings.h"

#include <gtest/gtest.h>

#include <cstring>

#include "support/peer_group.h"

namespace headrace::testing {
namespace {

/// An event that happens when the test says so.
class Switch {
 public:
  Event event() const { return Event(source_); }
  void happen() const { source_->happened = true; }
  bool is(const Event& event) const {
    source_->happened = false;
    const bool before = event.done();
    source_->happened = true;
    return !before && event.done();
  }

 private:
  struct Source final : Event::Source {
    bool happened = false;
    bool done() const override { return happened; }
    Status wait(Deadline) override {
      return happened ? Status() : Status(operation_error("it has not happened"));
    }
  };
  std::shared_ptr<Source> source_ = std::make_shared<Source>();
};

GroupSpec group_of(const std::string& name, std::int64_t rows) {
  return {.name = name,
          .parameters = {
              {.name = name + ".weight", .rows = rows, .row_elements = 33},
              {.name = name + ".bias", .rows = rows, .row_elements = 1, .dtype = DType::bfloat16}}};
}

/// Three groups of a ring of two slots, and one that stays.
class LandingsTest : public ::testing::Test {
 protected:
  void with_landings(const std::function<void(Landings&)>& body) {
    run_ranks({.backend = Backend::fake, .world_size = 1}, [&](const Rank& self) {
      const auto transport = self.transport().value();
      std::vector<AddressMap> maps;
      std::vector<SlotGroup> groups;
      for (const GroupSpec& spec : {group_of("first", 7), group_of("second", 50),
                                    group_of("third", 9), group_of("root", 5)}) {
        maps.emplace_back(spec, 1);
        groups.push_back({.name = spec.name,
                          .bytes = Landings::bytes(maps.back()),
                          .residency = spec.name == "root" ? Residency::root : Residency::ring});
      }
      const auto plan = SlotPlan::make(groups).value();
      const auto landings = Landings::make(&plan, maps, transport.get()).value();
      body(*landings);
      transport->liveness().leave();
    });
  }
};

TEST_F(LandingsTest, a_group_lands_is_used_and_frees_its_slot_for_the_next) {
  with_landings([](Landings& landings) {
    const auto first = landings.begin(0);
    ASSERT_TRUE(first) << first.error().describe();
    EXPECT_TRUE(first->free.done()) << "nobody had it";
    ASSERT_EQ(first->parameters.size(), 2U);
    for (void* address : first->parameters) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(address) % Landings::k_alignment, 0U);
    }
    std::memset(first->parameters[0], 1, 7 * 33 * 4);
    std::memset(first->parameters[1], 2, 7 * 2);
    EXPECT_FALSE(landings.use(0)) << "it has not landed";
    const Switch ready;
    landings.landed(0, ready.event());
    const auto used = landings.use(0);
    ASSERT_TRUE(used);
    EXPECT_TRUE(ready.is(used->ready));
    EXPECT_EQ(used->parameters, first->parameters);

    const Switch free;
    landings.release(0, free.event());
    const auto third = landings.begin(2);
    ASSERT_TRUE(third) << third.error().describe();
    EXPECT_TRUE(free.is(third->free));
    EXPECT_EQ(third->parameters[0], first->parameters[0]) << "the same slot";
    EXPECT_FALSE(landings.use(0)) << "another group has the slot";
  });
}

TEST_F(LandingsTest, a_gather_that_nobody_used_is_dropped_and_may_be_begun_again) {
  with_landings([](Landings& landings) {
    ASSERT_TRUE(landings.begin(0));
    const Switch ready;
    landings.landed(0, ready.event());
    const auto third = landings.begin(2);
    ASSERT_TRUE(third) << third.error().describe();
    EXPECT_TRUE(ready.is(third->free)) << "its writes come first";
    EXPECT_FALSE(landings.use(0));
    landings.landed(0, Event());  // of the gather that was dropped: no longer news
    EXPECT_FALSE(landings.use(2)) << "that has not landed";
    landings.landed(2, Event());
    EXPECT_TRUE(landings.use(2));
    const auto again = landings.begin(0);
    ASSERT_FALSE(again);
    EXPECT_NE(again.error().message.find("third"), std::string::npos) << again.error().message;
    EXPECT_NE(again.error().message.find("first"), std::string::npos);
    landings.release(2, Event());
    EXPECT_TRUE(landings.begin(0));
  });
}

TEST_F(LandingsTest, groups_in_different_slots_leave_each_other_alone) {
  with_landings([](Landings& landings) {
    for (const std::size_t group : {0, 1, 3}) {
      ASSERT_TRUE(landings.begin(group));
      landings.landed(group, Event());
      ASSERT_TRUE(landings.use(group));
    }
    EXPECT_FALSE(landings.begin(3)) << "it is in use";
    landings.release(2, Event());  // not in use: nothing
    for (const std::size_t group : {0, 1, 3}) {
      EXPECT_TRUE(landings.use(group)) << "used twice is used";
      landings.release(group, Event());
      EXPECT_FALSE(landings.use(group));
    }
  });
}

}  // namespace
}  // namespace headrace::testing
