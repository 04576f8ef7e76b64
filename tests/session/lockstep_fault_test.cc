// In lockstep a rank that dies, stops, leaves or calls something else is named on every other rank,
// in time; a transport that loses, delays or reorders gives right data or an error, never wrong
// data.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "support/session_group.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HEADRACE_SANITIZED 1
#else
#define HEADRACE_SANITIZED 0
#endif

namespace headrace::testing {
namespace {

constexpr int k_victim = 1;
constexpr Milliseconds k_soon{5000};
constexpr float k_untouched = -77.0F;

struct World {
  int ranks;
  int local_ranks;
};

void PrintTo(const World& world, std::ostream* stream) {
  *stream << world.ranks / world.local_ranks << "x" << world.local_ranks;
}

std::string world_name(const ::testing::TestParamInfo<World>& info) {
  return ::testing::PrintToString(info.param);
}

ModelSpec model_of(std::int64_t rows) {
  return {.groups = {{.name = "first",
                      .parameters = {{.name = "w", .rows = rows, .row_elements = 64},
                                     {.name = "b", .rows = rows, .row_elements = 1}}},
                     {.name = "second",
                      .parameters = {{.name = "v", .rows = rows, .row_elements = 64},
                                     {.name = "a", .rows = rows, .row_elements = 1}}}}};
}

SessionConfig config_of(const World& world) {
  SessionConfig config;
  config.mode = Mode::lockstep;
  config.local_ranks = world.local_ranks;
  config.lockstep.adopted = {false, true};
  config.lockstep.reduce_scatter.chunk_bytes = 512;
  return config;
}

/// One rank with its session and what it needs for calls; every call that succeeds is compared with
/// what it must give.
class Seat {
 public:
  Seat(const Rank& self, const World& world, const ModelSpec& model)
      : session_(connect(self, model, config_of(world)).value()),
        model_(model),
        values_(integer_values(model, 3)),
        shards_(session_->plan(), self.rank, values_),
        rank_(self.rank),
        ranks_(self.world_size) {
    const AddressMap& map = session_->plan().map(1);
    for (std::size_t p = 0; p < map.parameters(); ++p) {
      auto* block = reinterpret_cast<float*>(session_->resident(1, p).value());
      const auto first = static_cast<std::ptrdiff_t>(map.first_element(p, rank_));
      const auto count = static_cast<std::ptrdiff_t>(map.shard_elements(p, rank_));
      std::copy_n(values_[1][p].begin() + first, count, block);
    }
  }

  Session& session() { return *session_; }
  int rank() const { return rank_; }

  Status all_gather(std::size_t group) {
    Landings landings(session_->plan(), group);
    const Status status =
        session_->all_gather(group, shards_.sources()[group], landings.addresses());
    for (std::size_t p = 0; p < 2; ++p) {
      const bool right = landings.values(p) == values_[group][p];
      EXPECT_TRUE(right || !status) << "wrong data in " << model_.groups[group].name;
      written_ = written_ || right;
    }
    return status;
  }

  Status all_gather_into(std::size_t group, std::byte* memory) {
    const std::vector<void*> landings{memory, memory};
    return session_->all_gather(group, shards_.sources()[group], landings);
  }

  /// Rank r gives r + 1 times the values.
  Status reduce_scatter(std::size_t group, float alpha = 1.0F,
                        const std::vector<std::size_t>& parameters = {0, 1},
                        DType dtype = DType::float32, bool earlier = false) {
    const AddressMap& map = session_->plan().map(group);
    std::vector<std::vector<float>> gradients;
    std::vector<GradientSource> sources;
    for (const std::size_t p : parameters) {
      gradients.push_back(gradient(group, p));
      sources.push_back({.parameter = p, .address = gradients.back().data(), .dtype = dtype});
    }
    std::vector<float> output(map.accumulator_bytes() / sizeof(float), k_untouched);
    const Status status = session_->reduce_scatter(group, sources, output.data(), alpha,
                                                   /*accumulate=*/false, earlier);
    written_ = written_ || std::any_of(output.begin(), output.end(),
                                       [](float value) { return value != k_untouched; });
    if (status && dtype == DType::float32) {
      expect_sums(group, output, alpha, parameters);
    }
    return status;
  }

  Status reduce_from(std::size_t group, std::byte* memory) {
    std::vector<float> output(session_->plan().map(group).accumulator_bytes() / sizeof(float));
    const std::vector<GradientSource> sources{{.parameter = 0, .address = memory},
                                              {.parameter = 1, .address = memory}};
    return session_->reduce_scatter(group, sources, output.data(), 1.0F, /*accumulate=*/false);
  }

  Status reduce_into(std::size_t group, std::byte* memory) {
    const std::vector<std::vector<float>> gradients{gradient(group, 0), gradient(group, 1)};
    const std::vector<GradientSource> sources{{.parameter = 0, .address = gradients[0].data()},
                                              {.parameter = 1, .address = gradients[1].data()}};
    return session_->reduce_scatter(group, sources, reinterpret_cast<float*>(memory), 1.0F,
                                    /*accumulate=*/false);
  }

  Status open() {
    const auto epoch = session_->open(BracketKind::minibatch, 0, 0, {}, /*in_step=*/true);
    return epoch ? Status() : Status(epoch.error());
  }

  Status settle() {
    HEADRACE_TRY(session_->finish(0, 0, 0));
    const auto settled = session_->settle();
    return settled ? Status() : Status(settled.error());
  }

  /// Forward and backward of two layers.
  Status step() {
    HEADRACE_TRY(all_gather(0));
    HEADRACE_TRY(all_gather(1));
    HEADRACE_TRY(reduce_scatter(1));
    HEADRACE_TRY(all_gather(0));
    return reduce_scatter(0);
  }

  /// Whether any call so far wrote anything to what the caller gave it.
  bool written() const { return written_; }
  void forget_written() { written_ = false; }

 private:
  std::vector<float> gradient(std::size_t group, std::size_t parameter) const {
    std::vector<float> gradient = values_[group][parameter];
    for (float& value : gradient) {
      value *= static_cast<float>(rank_ + 1);
    }
    return gradient;
  }

  void expect_sums(std::size_t group, const std::vector<float>& output, float alpha,
                   const std::vector<std::size_t>& parameters) const {
    const AddressMap& map = session_->plan().map(group);
    const float factor = alpha * static_cast<float>(ranks_ * (ranks_ + 1) / 2);
    for (const std::size_t p : parameters) {
      const float* rows = output.data() + map.accumulator_offset(p) / sizeof(float);
      const std::size_t first = map.first_element(p, rank_);
      for (std::size_t i = 0; i < map.shard_elements(p, rank_); ++i) {
        ASSERT_EQ(rows[i], factor * values_[group][p][first + i])
            << "wrong sum in " << model_.groups[group].name << ", element " << i;
      }
    }
  }

  std::unique_ptr<Session> session_;
  ModelSpec model_;
  std::vector<std::vector<std::vector<float>>> values_;
  Shards shards_;
  int rank_;
  int ranks_;
  bool written_ = false;
};

// A touch of what follows the first page kills this process at that very instruction.
std::byte* memory_that_kills() {
  struct sigaction action{};
  action.sa_handler = [](int) { ::kill(::getpid(), SIGKILL); };
  ::sigaction(SIGSEGV, &action, nullptr);
  ::sigaction(SIGBUS, &action, nullptr);
  const std::size_t bytes = std::size_t{16} << 20;
  auto* memory = static_cast<std::byte*>(
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ::mprotect(memory + 4096, bytes - 4096, PROT_NONE);
  return memory;
}

/// Steps until one fails, which must name the victim soon; every later call says the same.
void expect_named(Seat& seat, const std::string& words, Milliseconds limit = k_soon) {
  Status status;
  std::int64_t begin = 0;
  for (int step = 0; step < 1000 && status; ++step) {
    begin = now_ns();
    status = seat.step();
  }
  ASSERT_FALSE(status) << "no survivor may finish without the victim";
  EXPECT_LT(now_ns() - begin, limit.count() * 1'000'000) << status.error().describe();
  EXPECT_EQ(status.error().rank, k_victim) << status.error().describe();
  EXPECT_NE(status.error().message.find(words), std::string::npos) << status.error().describe();
  for (const Status& again : {seat.all_gather(0), seat.reduce_scatter(1)}) {
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().rank, k_victim);
  }
}

constexpr std::int64_t k_many_rows = 4096;
constexpr std::int64_t k_few_rows = 21;

// -- a rank that dies

class LockstepKilledRankTest : public ::testing::TestWithParam<World> {
 protected:
  void SetUp() override {
    if (HEADRACE_SANITIZED) {
      GTEST_SKIP()
          << "sanitizers take the signals that these tests die by; the release suite runs them";
    }
  }

  static void expect(const std::function<void(Seat&)>& last_words) {
    PeerGroup group{.backend = Backend::shm_processes, .world_size = GetParam().ranks};
    group.expected_to_die = {k_victim};
    run_ranks(group, [&](const Rank& self) {
      Seat seat(self, GetParam(), model_of(k_many_rows));
      if (self.rank == k_victim) {
        ASSERT_TRUE(seat.step());
        ASSERT_TRUE(seat.step());
        last_words(seat);
        FAIL() << "the victim lives";
      }
      expect_named(seat, "rank 1 died");
    });
  }
};

TEST_P(LockstepKilledRankTest, between_calls) {
  expect([](Seat& seat) {
    ASSERT_TRUE(seat.all_gather(0));
    ::kill(::getpid(), SIGKILL);
  });
}

TEST_P(LockstepKilledRankTest, inside_all_gather) {
  expect([](Seat& seat) { (void)seat.all_gather_into(0, memory_that_kills()); });
}

TEST_P(LockstepKilledRankTest, inside_all_gather_of_adopted_shards) {
  expect([](Seat& seat) {
    ASSERT_TRUE(seat.all_gather(0));
    (void)seat.all_gather_into(1, memory_that_kills());
  });
}

TEST_P(LockstepKilledRankTest, inside_reduce_scatter_where_it_reads_gradients) {
  expect([](Seat& seat) {
    ASSERT_TRUE(seat.all_gather(0));
    ASSERT_TRUE(seat.all_gather(1));
    (void)seat.reduce_from(1, memory_that_kills());
  });
}

TEST_P(LockstepKilledRankTest, inside_reduce_scatter_where_it_writes_the_sum) {
  expect([](Seat& seat) {
    ASSERT_TRUE(seat.all_gather(0));
    ASSERT_TRUE(seat.all_gather(1));
    (void)seat.reduce_into(1, memory_that_kills());
  });
}

TEST_P(LockstepKilledRankTest, while_it_waits_inside_a_call) {
  expect([](Seat& seat) {
    std::thread([] {
      std::this_thread::sleep_for(Milliseconds(50));
      ::kill(::getpid(), SIGKILL);
    }).detach();
    for (;;) {
      ASSERT_TRUE(seat.step());
    }
  });
}

constexpr World k_worlds[] = {{2, 2}, {3, 3}, {3, 1}, {4, 2}};

INSTANTIATE_TEST_SUITE_P(Worlds, LockstepKilledRankTest, ::testing::ValuesIn(k_worlds), world_name);

// -- a rank that stops, or leaves

TEST(LockstepStoppedRankTest, is_named_after_the_silence_limit_and_not_before) {
  if (HEADRACE_SANITIZED) {
    GTEST_SKIP() << "timing under a sanitizer says nothing; the release suite runs this";
  }
  PeerGroup group{.backend = Backend::shm_processes, .world_size = 3};
  group.expected_to_stop = {k_victim};
  group.liveness.silence = Milliseconds(1500);
  run_ranks(group, [](const Rank& self) {
    Seat seat(self, {3, 3}, model_of(k_few_rows));
    ASSERT_TRUE(seat.step());
    const std::int64_t begin = now_ns();
    if (self.rank == k_victim) {
      ::raise(SIGSTOP);
      return;
    }
    expect_named(seat, "silent", Milliseconds(1500) + k_soon);
    EXPECT_GE(static_cast<double>(now_ns() - begin) / 1e9, 1.4);
  });
}

class LockstepLaggardTest : public ::testing::TestWithParam<World> {
 protected:
  /// All ranks but the victim step on; it makes `calls` in their place.
  static void expect(const std::string& words, const std::function<void(Seat&)>& calls,
                     Milliseconds no_progress = WaitConfig().no_progress) {
    for (const Backend backend : backends()) {
      PeerGroup group{.backend = backend, .world_size = GetParam().ranks};
      group.wait.no_progress = no_progress;
      run_ranks(group, [&](const Rank& self) {
        Seat seat(self, GetParam(), model_of(k_few_rows));
        if (self.rank == k_victim) {
          ASSERT_TRUE(seat.step());
          calls(seat);
        } else {
          expect_named(seat, words);
        }
      });
    }
  }
};

TEST_P(LockstepLaggardTest, that_leaves_early_is_named) {
  expect("left", [](Seat& seat) { seat.session().close(); });
}

TEST_P(LockstepLaggardTest, that_makes_one_call_fewer_and_leaves_is_named) {
  expect("left", [](Seat& seat) {
    ASSERT_TRUE(seat.all_gather(0));
    ASSERT_TRUE(seat.all_gather(1));
    ASSERT_TRUE(seat.reduce_scatter(1));
    ASSERT_TRUE(seat.all_gather(0));
    seat.session().close();
  });
}

TEST_P(LockstepLaggardTest, whose_session_goes_without_being_closed_is_named) {
  expect("left", [](Seat& seat) { ASSERT_TRUE(seat.all_gather(0)); });
}

TEST_P(LockstepLaggardTest, that_fails_by_itself_is_named_with_its_reason) {
  expect("no more data", [](Seat& seat) { seat.session().fail("no more data"); });
}

TEST_P(LockstepLaggardTest, that_lives_but_does_not_call_is_named_after_the_progress_limit) {
  expect(
      "no_progress_seconds",
      [](Seat& seat) {
        ASSERT_TRUE(seat.all_gather(0));
        const Deadline deadline(k_soon);
        while (seat.session().check() && !deadline.passed()) {
          std::this_thread::sleep_for(Milliseconds(10));
        }
        EXPECT_FALSE(seat.session().check()) << "nobody told the rank that it is missed";
      },
      Milliseconds(300));
}

INSTANTIATE_TEST_SUITE_P(Worlds, LockstepLaggardTest, ::testing::ValuesIn(k_worlds), world_name);

// -- calls that differ

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
  expect(
      {"'first'", "'second'"},
      [](Seat& seat) -> Status {
        HEADRACE_TRY(seat.all_gather(0));
        seat.forget_written();
        return seat.all_gather(0);
      },
      [](Seat& seat) -> Status {
        HEADRACE_TRY(seat.all_gather(0));
        seat.forget_written();
        return seat.all_gather(1);
      });
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

// -- a transport that errs

constexpr Milliseconds k_no_progress{HEADRACE_SANITIZED ? 1000 : 150};

/// What the ranks of one run came to.
struct Tally {
  int done = 0;
  int failed = 0;
};

/// Runs two steps of every rank as threads under the faults. Right data or an error in time, on
/// every rank.
Tally run_with(const World& world, const FaultPlan& faults) {
  PeerGroup group{.backend = Backend::fake, .world_size = world.ranks, .faults = faults};
  group.wait.no_progress = k_no_progress;
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
  const Tally tally =
      run_with(world, [&](int source, int peer, LaneOperation operation, std::uint64_t) -> Fault {
        lanes[static_cast<std::size_t>(source * world.ranks + peer)].push_back(operation);
        return {};
      });
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
  static constexpr std::size_t k_places = HEADRACE_SANITIZED ? 4 : 8;
};

TEST_P(LockstepFaultyTransportTest, delays_change_nothing_but_time) {
  const World world = GetParam();
  for (int slow = 0; slow < world.ranks; ++slow) {
    const Tally tally = run_with(world, [slow](int source, int, LaneOperation, std::uint64_t n) {
      return source == slow && n % 7 == 0
                 ? Fault{.kind = Fault::Kind::delay, .delay = Milliseconds(2)}
                 : Fault{};
    });
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
