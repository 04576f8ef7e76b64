// A transport that loses, delays or reorders gives lockstep right data or an error, never wrong
// data.

#include <gtest/gtest.h>

#include <atomic>
#include <functional>

#include "session/lockstep_seat.h"
#include "support/sanitizers.h"

namespace headrace::testing {
namespace {

/// Of runs that may fail: a busy machine may then make them fail, too.
constexpr Milliseconds k_no_progress{k_sanitized ? 300 : 150};

/// What the ranks of one run came to.
struct Tally {
  int done = 0;
  int failed = 0;
};

/// Runs two steps of every rank as threads under the faults. Right data or an error in time, on
/// every rank.
Tally run_with(const World& world, const FaultPlan& faults,
               Milliseconds no_progress = k_no_progress) {
  PeerGroup group{.backend = Backend::fake, .world_size = world.ranks, .faults = faults};
  group.wait.no_progress = no_progress;
  std::atomic<int> done = 0;
  std::atomic<int> failed = 0;
  run_ranks(group, [&](const Rank& self) {
    Seat seat(self, world, model_of(k_few_rows));
    Status status = seat.step();
    if (status) {
      status = seat.step();
    }
    if (status) {
      seat.session().close();
      ++done;
      return;
    }
    ++failed;
    EXPECT_NE(status.error().scope, Scope::operation) << status.error().describe();
  });
  EXPECT_EQ(done + failed, world.ranks);
  return {.done = done, .failed = failed};
}

/// Operations of each kind on each lane of an unharmed run, by lane and then by number.
std::vector<std::vector<LaneOperation>> lanes_of(const World& world) {
  std::vector<std::vector<LaneOperation>> lanes(
      static_cast<std::size_t>(world.ranks * world.ranks));
  const Tally tally = run_with(
      world,
      [&](int source, int peer, LaneOperation operation, std::uint64_t) -> Fault {
        lanes[static_cast<std::size_t>(source * world.ranks + peer)].push_back(operation);
        return {};
      },
      k_patience);
  EXPECT_EQ(tally.done, world.ranks);
  return lanes;
}

/// One fault at one operation.
FaultPlan at(int source, int peer, std::uint64_t number, Fault fault) {
  return [=](int from, int to, LaneOperation, std::uint64_t now) {
    return from == source && to == peer && now == number ? fault : Fault{};
  };
}

/// Visits about `count` operations of those wanted, spread over all lanes and the whole run.
void for_some(const World& world, const std::function<bool(LaneOperation)>& wanted,
              std::size_t count, const std::function<void(int, int, std::uint64_t)>& visit) {
  const auto lanes = lanes_of(world);
  struct Place {
    int source;
    int peer;
    std::uint64_t number;
  };
  std::vector<Place> places;
  for (int source = 0; source < world.ranks; ++source) {
    for (int peer = 0; peer < world.ranks; ++peer) {
      const auto& lane = lanes[static_cast<std::size_t>(source * world.ranks + peer)];
      for (std::uint64_t number = 0; number < lane.size(); ++number) {
        if (wanted(lane[number])) {
          places.push_back({source, peer, number});
        }
      }
    }
  }
  ASSERT_GE(places.size(), count);
  for (std::size_t i = 0; i < count; ++i) {
    const Place& place = places[i * places.size() / count];
    visit(place.source, place.peer, place.number);
  }
}

bool is_signal(LaneOperation operation) { return operation == LaneOperation::signal; }
bool is_put(LaneOperation operation) { return operation == LaneOperation::put; }

class LockstepFaultyTransportTest : public ::testing::TestWithParam<World> {
 protected:
  static constexpr std::size_t k_places = k_sanitized ? 4 : 8;
};

TEST_P(LockstepFaultyTransportTest, delays_change_nothing_but_time) {
  const World world = GetParam();
  for (int slow = 0; slow < world.ranks; ++slow) {
    const Tally tally = run_with(
        world,
        [slow](int source, int, LaneOperation, std::uint64_t n) {
          return source == slow && n % 7 == 0
                     ? Fault{.kind = Fault::Kind::delay, .delay = Milliseconds(2)}
                     : Fault{};
        },
        k_patience);
    EXPECT_EQ(tally.done, world.ranks);
  }
}

TEST_P(LockstepFaultyTransportTest, a_lost_signal_gives_an_error_or_right_data) {
  int failed = 0;
  for_some(GetParam(), is_signal, k_places, [&](int source, int peer, std::uint64_t number) {
    SCOPED_TRACE(::testing::Message() << source << " to " << peer << ", " << number);
    failed += run_with(GetParam(), at(source, peer, number, {.kind = Fault::Kind::drop})).failed;
  });
  EXPECT_GT(failed, 0) << "some signals are needed";
}

TEST_P(LockstepFaultyTransportTest, a_signal_after_its_time_gives_an_error_or_right_data) {
  for_some(GetParam(), is_signal, k_places, [&](int source, int peer, std::uint64_t number) {
    SCOPED_TRACE(::testing::Message() << source << " to " << peer << ", " << number);
    (void)run_with(GetParam(), at(source, peer, number, {.kind = Fault::Kind::reorder}));
  });
}

// A channel that loses data must not deliver what follows: its promise is that a signal becomes
// visible after everything put before.
TEST_P(LockstepFaultyTransportTest,
       a_lane_that_stops_at_data_is_an_error_where_the_data_is_needed) {
  const World world = GetParam();
  for_some(world, is_put, k_places, [&](int source, int peer, std::uint64_t number) {
    SCOPED_TRACE(::testing::Message() << source << " to " << peer << ", " << number);
    const Tally tally = run_with(world, at(source, peer, number, {.kind = Fault::Kind::stop}));
    EXPECT_GT(tally.failed, 0) << "the source may have all that it needs";
  });
}

TEST_P(LockstepFaultyTransportTest, a_lane_that_stops_at_a_signal_gives_an_error_or_right_data) {
  for_some(GetParam(), is_signal, k_places, [&](int source, int peer, std::uint64_t number) {
    SCOPED_TRACE(::testing::Message() << source << " to " << peer << ", " << number);
    (void)run_with(GetParam(), at(source, peer, number, {.kind = Fault::Kind::stop}));
  });
}

TEST_P(LockstepFaultyTransportTest, a_rank_whose_lanes_all_stop_ends_every_rank) {
  const World world = GetParam();
  for (const std::uint64_t number : {0, 3, 8}) {
    const Tally tally = run_with(world, [number](int source, int, LaneOperation, std::uint64_t n) {
      return source == k_victim && n == number ? Fault{.kind = Fault::Kind::stop} : Fault{};
    });
    EXPECT_EQ(tally.done, 0) << "stopped at operation " << number;
  }
}

// The description of a call is the first thing put in it, and its signal the second.
TEST_P(LockstepFaultyTransportTest, a_description_of_an_earlier_call_is_found) {
  const World world = GetParam();
  const Tally lost = run_with(world, at(0, k_victim, 0, {.kind = Fault::Kind::drop}));
  EXPECT_EQ(lost.done, 0);
  (void)run_with(world, at(0, k_victim, 0, {.kind = Fault::Kind::reorder}));
}

INSTANTIATE_TEST_SUITE_P(Worlds, LockstepFaultyTransportTest, ::testing::ValuesIn(k_worlds),
                         world_name);

}  // namespace
}  // namespace headrace::testing
