// Ranks whose lockstep calls differ are told so before any byte moves; a call that is wrong on its
// own rank changes nothing.

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "session/lockstep_seat.h"

namespace headrace::testing {
namespace {

class LockstepDivergenceTest : public ::testing::TestWithParam<World> {
 protected:
  /// The victim makes `theirs` where the others make `ours`: an error on all ranks that says both
  /// words, before anything is written.
  static void expect(const std::vector<std::string>& words,
                     const std::function<Status(Seat&)>& ours,
                     const std::function<Status(Seat&)>& theirs) {
    for (const Backend backend : backends()) {
      run_ranks({.backend = backend, .world_size = GetParam().ranks}, [&](const Rank& self) {
        Seat seat(self, GetParam(), model_of(k_few_rows));
        // The others may be in their next calls, and fail, before this rank ends the step.
        Status status = seat.step();
        const std::int64_t begin = now_ns();
        if (status) {
          seat.forget_written();
          status = self.rank == k_victim ? theirs(seat) : ours(seat);
          EXPECT_FALSE(seat.written()) << "bytes moved before the calls were compared";
        }
        ASSERT_FALSE(status) << "rank " << self.rank;
        EXPECT_LT(now_ns() - begin, k_soon.count() * 1'000'000);
        for (const std::string& word : words) {
          EXPECT_NE(status.error().message.find(word), std::string::npos)
              << status.error().describe();
        }
        EXPECT_NE(status.error().message.find("rank 1"), std::string::npos)
            << status.error().describe();
        EXPECT_FALSE(seat.step()) << "the session has ended";
      });
    }
  }
};

TEST_P(LockstepDivergenceTest, another_group) {
  expect(
      {"all-gather", "'first'", "'second'"}, [](Seat& seat) { return seat.all_gather(0); },
      [](Seat& seat) { return seat.all_gather(1); });
}

TEST_P(LockstepDivergenceTest, another_group_to_reduce) {
  expect(
      {"reduce-scatter", "'first'", "'second'"}, [](Seat& seat) { return seat.reduce_scatter(0); },
      [](Seat& seat) { return seat.reduce_scatter(1); });
}

TEST_P(LockstepDivergenceTest, another_collective) {
  expect(
      {"all-gather", "reduce-scatter"}, [](Seat& seat) { return seat.all_gather(0); },
      [](Seat& seat) { return seat.reduce_scatter(0); });
}

TEST_P(LockstepDivergenceTest, another_scale) {
  expect(
      {"0.5", "0.25", "'first'"}, [](Seat& seat) { return seat.reduce_scatter(0, 0.5F); },
      [](Seat& seat) { return seat.reduce_scatter(0, 0.25F); });
}

TEST_P(LockstepDivergenceTest, another_set_of_gradients) {
  expect(
      {"other parameters", "'first'"},
      [](Seat& seat) { return seat.reduce_scatter(0, 1.0F, {0, 1}); },
      [](Seat& seat) { return seat.reduce_scatter(0, 1.0F, {1}); });
}

TEST_P(LockstepDivergenceTest, no_gradient_at_all) {
  expect(
      {"other parameters", "'first'"},
      [](Seat& seat) { return seat.reduce_scatter(0, 1.0F, {0, 1}); },
      [](Seat& seat) { return seat.reduce_scatter(0, 1.0F, {}); });
}

TEST_P(LockstepDivergenceTest, another_dtype) {
  expect(
      {"dtypes", "'first'"}, [](Seat& seat) { return seat.reduce_scatter(0, 1.0F, {0, 1}); },
      [](Seat& seat) { return seat.reduce_scatter(0, 1.0F, {0, 1}, DType::bfloat16); });
}

TEST_P(LockstepDivergenceTest, gradients_of_earlier_calls) {
  expect(
      {"number of microbatches", "'first'"},
      [](Seat& seat) { return seat.reduce_scatter(0, 1.0F, {0, 1}, DType::float32, true); },
      [](Seat& seat) { return seat.reduce_scatter(0, 1.0F, {0, 1}, DType::float32, false); });
}

TEST_P(LockstepDivergenceTest, one_call_fewer_in_a_bracket) {
  expect(
      {"leaving its bracket", "all-gather", "'first'"},
      [](Seat& seat) -> Status {
        HEADRACE_TRY(seat.open());
        return seat.all_gather(0);
      },
      [](Seat& seat) -> Status {
        HEADRACE_TRY(seat.open());
        return seat.settle();
      });
}

TEST_P(LockstepDivergenceTest, a_bracket_on_one_rank_alone) {
  expect(
      {"entering a bracket", "all-gather", "'first'"},
      [](Seat& seat) { return seat.all_gather(0); }, [](Seat& seat) { return seat.open(); });
}

TEST_P(LockstepDivergenceTest, one_call_fewer) {
  // Others may fail in their second call while this rank writes what is right in its first.
  const auto twice = [](Seat& seat, std::size_t second) -> Status {
    const Status first = seat.all_gather(0);
    seat.forget_written();
    HEADRACE_TRY(first);
    return seat.all_gather(second);
  };
  expect(
      {"'first'", "'second'"}, [&](Seat& seat) { return twice(seat, 0); },
      [&](Seat& seat) { return twice(seat, 1); });
}

INSTANTIATE_TEST_SUITE_P(Worlds, LockstepDivergenceTest, ::testing::ValuesIn(k_worlds), world_name);

TEST(LockstepArenaTest, holds_nothing_of_on_demand) {
  run_ranks({.backend = Backend::fake, .world_size = 2}, [](const Rank& self) {
    const World world{2, 2};
    const SessionConfig config = config_of(world);
    const ModelSpec model = model_of(k_many_rows);
    const auto session = connect(self, model, config);
    ASSERT_TRUE(session) << session.error().describe();
    const auto plan =
        LockstepPlan::make(Topology::make(1, 2).value(), model, config.lockstep, k_page).value();
    EXPECT_EQ((*session)->counters().arena_bytes, plan.end());
    (*session)->close();
  });
}

TEST(LockstepOperationErrorTest, leaves_the_session_usable) {
  for (const Backend backend : backends()) {
    run_ranks({.backend = backend, .world_size = 3}, [](const Rank& self) {
      Seat seat(self, {3, 3}, model_of(k_few_rows));
      ASSERT_TRUE(seat.step());
      if (self.rank == k_victim) {
        Session& session = seat.session();
        float value = 0;
        std::vector<void*> one_landing{&value};
        const std::vector<ShardSource> shards(2);
        const GradientSource gradient{.parameter = 0, .address = &value};
        const GradientSource beyond{.parameter = 2, .address = &value};
        const std::vector<GradientSource> twice{gradient, gradient};
        for (const Status& status :
             {session.all_gather(0, shards, one_landing), session.all_gather(2, shards, {}),
              session.reduce_scatter(0, {&beyond, 1}, &value, 1.0F, false),
              session.reduce_scatter(0, twice, &value, 1.0F, false),
              session.reduce_scatter(7, {&gradient, 1}, &value, 1.0F, false)}) {
          ASSERT_FALSE(status);
          EXPECT_EQ(status.error().scope, Scope::operation) << status.error().describe();
        }
      }
      for (int step = 0; step < 3; ++step) {
        const Status status = seat.step();
        ASSERT_TRUE(status) << status.error().describe();
      }
      seat.session().close();
    });
  }
}

}  // namespace
}  // namespace headrace::testing
