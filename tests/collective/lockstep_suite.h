#pragma once

// Lockstep collectives on real transports, every topology by the same programs. A backend joins by
// instantiating the suite.

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "collective/lockstep_caller.h"
#include "support/peer_group.h"
#include "support/shared_words.h"

namespace headrace::testing {

/// Ranks of some kind, and how they stand.
struct WorldCase {
  PeerGroup group;
  World world;
};

inline void PrintTo(const WorldCase& given, std::ostream* stream) {
  PrintTo(given.group, stream);
  *stream << "_";
  PrintTo(given.world, stream);
}

/// The same ranks as each of these worlds.
inline std::vector<WorldCase> cases(PeerGroup group, const std::vector<World>& worlds) {
  std::vector<WorldCase> result;
  for (const World& world : worlds) {
    group.world_size = world.ranks();
    group.local_ranks = world.local_ranks;
    result.push_back({.group = group, .world = world});
  }
  return result;
}

class LockstepTest : public ::testing::TestWithParam<WorldCase> {
 protected:
  void SetUp() override { skip_unless_runnable(GetParam().group); }

  static World world() { return GetParam().world; }
  static void with_caller(const std::function<void(Caller&)>& body, Lanes lanes = {}) {
    run([&](const Rank& self) {
      Caller caller(self, world(), small_chunks(), lanes);
      body(caller);
      caller.leave();
    });
  }
  static void run(const std::function<void(const Rank&)>& body) {
    run_ranks(GetParam().group, body);
  }

  /// Runs with random options give the same bits as each other.
  static void expect_knobs_change_no_bit(std::size_t trials) {
    const auto ranks = static_cast<std::size_t>(world().ranks());
    const std::shared_ptr<std::uint64_t> shared = shared_words(trials * ranks);
    std::uint64_t* digests = shared.get();
    std::mt19937 random(7);
    for (std::size_t trial = 0; trial < trials; ++trial) {
      LockstepOptions options;
      options.all_gather.head_bytes = 1 + random() % 4096;
      options.all_gather.min_run = static_cast<int>(1 + random() % 5);
      options.reduce_scatter.chunk_bytes = 64 << random() % 8;
      options.reduce_scatter.staging_slots = static_cast<int>(1 + random() % 3);
      options.reduce_scatter.passes = static_cast<int>(1 + random() % 4);
      options.reduce_scatter.transfers = static_cast<int>(1 + random() % 4);
      options.reduce_scatter.mode =
          random() % 2 == 0 ? GradientMode::in_place : GradientMode::slot_reuse;
      run([&](const Rank& self) {
        Caller caller(self, world(), options, {.streams = static_cast<std::size_t>(trial % 5) * 2});
        caller.gather(0, 3);
        std::vector<float> output;
        for (int repetition = 0; repetition < 2; ++repetition) {
          output = caller.reduce(0, DType::bfloat16, 1, false, 0.3F);
        }
        const std::string_view bytes(reinterpret_cast<const char*>(output.data()),
                                     output.size() * sizeof(float));
        digests[trial * ranks + static_cast<std::size_t>(self.rank)] = Digest().add(bytes).value();
        caller.leave();
      });
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        ASSERT_NE(digests[trial * ranks + rank], 0U);
        ASSERT_EQ(digests[trial * ranks + rank], digests[rank]) << "trial " << trial;
      }
    }
  }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LockstepTest);

TEST_P(LockstepTest, gathers_every_byte_call_after_call) { with_caller(gather_call_after_call); }

TEST_P(LockstepTest, reduces_to_the_sum_of_all_ranks) { with_caller(reduce_call_after_call); }

TEST_P(LockstepTest, both_collectives_take_turns) { with_caller(take_turns); }

TEST_P(LockstepTest, plans_nothing_in_the_steady_state) { with_caller(plan_nothing_more); }

TEST_P(LockstepTest, lanes_may_run_side_by_side) {
  with_caller(alternate, {.streams = k_most_lane_streams});
}

TEST_P(LockstepTest, knobs_and_threads_change_no_bit) { expect_knobs_change_no_bit(5); }

TEST_P(LockstepTest, parameters_without_a_gradient_stay_as_they_are) {
  with_caller(reduce_one_parameter);
}

TEST_P(LockstepTest, infinities_and_nans_reach_the_output) { with_caller(reduce_infinities); }

}  // namespace headrace::testing
