// accumulate = reproducible: the bits of a sum do not depend on who comes when.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "kernel/cast.h"
#include "support/session_group.h"

namespace headrace::testing {
namespace {

constexpr std::size_t k_unused = 2;  // parameter of group 0 that nobody pushes

ModelSpec model() {
  return {
      .groups = {{.name = "root",
                  .parameters = {{.name = "weight", .rows = 37, .row_elements = 600},
                                 {.name = "bias", .rows = 3, .row_elements = 1},
                                 {.name = "unused", .rows = 9, .row_elements = 2}}},
                 {.name = "empty", .parameters = {}},
                 {.name = "block",
                  .parameters = {
                      {.name = "head", .rows = 11, .row_elements = 5, .dtype = DType::bfloat16}}}}};
}

// What one rank pushes of one parameter in one microbatch; empty where it makes no gradient.
std::vector<float> gradient(int rank, int micro, std::size_t group, std::size_t parameter) {
  const bool sometimes = group == 0 && parameter == 1;
  if ((group == 0 && parameter == k_unused) || (sometimes && (rank + micro) % 2 == 1)) {
    return {};
  }
  const ModelSpec spec = model();
  const ParameterSpec& shape = spec.groups[group].parameters[parameter];
  std::mt19937 random(static_cast<unsigned>(1 + rank + 100 * micro +
                                            10'000 * static_cast<int>(group * 10 + parameter)));
  std::uniform_real_distribution<double> exponent(-8, 8);
  std::vector<float> values(static_cast<std::size_t>(shape.rows * shape.row_elements));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double sign = random() % 2 == 0 ? 1 : -1;
    // Every fourth sum over three ranks cancels: 1e8 - 1e8 + 1e-8, which keeps or loses the last.
    constexpr std::array<double, 3> k_cancels{1e8, -1e8, 1e-8};
    values[i] =
        static_cast<float>(i % 4 == 0 ? k_cancels[static_cast<std::size_t>((rank + micro) % 3)]
                                      : sign * std::pow(10.0, exponent(random)));
  }
  if (shape.dtype == DType::bfloat16) {  // what travels, so that the reference sees the same
    std::vector<std::uint16_t> rounded(values.size());
    cast(rounded.data(), DType::bfloat16, values.data(), DType::float32, values.size());
    cast(values.data(), DType::float32, rounded.data(), DType::bfloat16, values.size());
  }
  return values;
}

Status push_microbatch(Session& session, int micro) {
  for (std::size_t group = 0; group < session.plan().groups(); ++group) {
    std::vector<std::vector<float>> gradients;
    std::vector<GradientSource> sources;
    for (std::size_t p = 0; p < session.plan().map(group).parameters(); ++p) {
      std::vector<float> values = gradient(session.rank(), micro, group, p);
      if (!values.empty()) {
        sources.push_back({.parameter = p, .address = values.data(), .dtype = DType::float32});
        gradients.push_back(std::move(values));  // its memory stays where it is
      }
    }
    HEADRACE_TRY_ASSIGN(const std::uint64_t ticket, session.push(group, sources));
    HEADRACE_TRY(session.wait_pushed(ticket));
  }
  return {};
}

// The sums of this rank's shard, parameter after parameter.
std::vector<float> collect_all(Session& session) {
  std::vector<float> all;
  for (std::size_t group = 0; group < session.plan().groups(); ++group) {
    const AddressMap& map = session.plan().map(group);
    for (std::size_t p = 0; p < map.parameters(); ++p) {
      std::vector<float> sum(map.shard_elements(p, session.rank()));
      EXPECT_TRUE(session.collect(group, p, sum.data(), DType::float32, 1.0F, false));
      all.insert(all.end(), sum.begin(), sum.end());
    }
  }
  return all;
}

// What reproducible promises: each rank's own microbatches in their order, then the ranks in
// theirs, in fp32. And beside it the sum in fp64 and the sum of magnitudes, to judge errors by.
struct Expected {
  std::vector<float> sum;
  std::vector<double> exact;
  std::vector<double> magnitude;
};

Expected expect_of(const Session& session, const std::vector<int>& microbatches) {
  Expected expected;
  for (std::size_t group = 0; group < session.plan().groups(); ++group) {
    const AddressMap& map = session.plan().map(group);
    for (std::size_t p = 0; p < map.parameters(); ++p) {
      const std::size_t first = map.first_element(p, session.rank());
      const std::size_t count = map.shard_elements(p, session.rank());
      std::vector<float> sum(count);
      std::vector<double> exact(count);
      std::vector<double> magnitude(count);
      for (int rank = 0; rank < session.world_size(); ++rank) {
        std::vector<float> slot(count);
        for (int micro = 0; micro < microbatches[static_cast<std::size_t>(rank)]; ++micro) {
          const std::vector<float> values = gradient(rank, micro, group, p);
          for (std::size_t i = 0; i < count && !values.empty(); ++i) {
            slot[i] += values[first + i];
            exact[i] += static_cast<double>(values[first + i]);
            magnitude[i] += std::abs(static_cast<double>(values[first + i]));
          }
        }
        for (std::size_t i = 0; i < count; ++i) {
          sum[i] += slot[i];
        }
      }
      expected.sum.insert(expected.sum.end(), sum.begin(), sum.end());
      expected.exact.insert(expected.exact.end(), exact.begin(), exact.end());
      expected.magnitude.insert(expected.magnitude.end(), magnitude.begin(), magnitude.end());
    }
  }
  return expected;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void expect_close(const std::vector<float>& sums, const Expected& expected) {
  ASSERT_EQ(sums.size(), expected.exact.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    ASSERT_LE(std::abs(static_cast<double>(sums[i]) - expected.exact[i]),
              1e-5 * expected.magnitude[i])
        << "element " << i;
  }
}

// Ranks that are threads push in a given order: `order[i]` is the rank of the i-th push of all.
class Turns {
 public:
  explicit Turns(std::vector<int> order) : order_(std::move(order)) {}

  template <class Body>
  void take(int rank, const Body& body) {
    std::unique_lock lock(mutex_);
    moved_.wait(lock, [&] { return order_[next_] == rank; });
    lock.unlock();
    body();
    lock.lock();
    ++next_;
    moved_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable moved_;
  std::vector<int> order_;
  std::size_t next_ = 0;
};

std::vector<int> counts(const std::vector<int>& order, int world_size) {
  std::vector<int> counts(static_cast<std::size_t>(world_size));
  for (const int rank : order) {
    ++counts[static_cast<std::size_t>(rank)];
  }
  return counts;
}

// Runs one minibatch an order, all in one session; calls `judge(rank's session, its sums, what
// they should be)`.
using Judge = std::function<void(const Session&, const std::vector<float>&, const Expected&)>;
void push_in_orders(Backend backend, int world_size, Accumulation accumulate,
                    const std::vector<std::vector<int>>& orders, const Judge& judge) {
  std::deque<Turns> turns(orders.begin(), orders.end());
  run_ranks({.backend = backend, .world_size = world_size}, [&](const Rank& self) {
    SessionConfig config;
    config.accumulate = accumulate;
    config.chunk_bytes = 4096;  // several chunks a parameter
    auto session = connect(self, model(), config);
    ASSERT_TRUE(session) << session.error().describe();
    const Shards shards((*session)->plan(), self.rank, integer_values(model(), 1));
    for (std::size_t i = 0; i < orders.size(); ++i) {
      ASSERT_TRUE((*session)->open(BracketKind::minibatch, 0, 0, shards.sources()));
      const std::vector<int> microbatches = counts(orders[i], world_size);
      for (int micro = 0; micro < microbatches[static_cast<std::size_t>(self.rank)]; ++micro) {
        turns[i].take(self.rank,
                      [&] { EXPECT_TRUE(push_microbatch(**session, micro)) << "order " << i; });
      }
      ASSERT_TRUE((*session)->finish(0, 0, 0));
      const auto settlement = (*session)->settle();
      ASSERT_TRUE(settlement) << settlement.error().describe();
      EXPECT_FALSE((*session)->plan().touches(settlement->touched, 0, k_unused));
      judge(**session, collect_all(**session), expect_of(**session, microbatches));
    }
  });
}

std::vector<std::vector<int>> permutations_of_three() {
  std::vector<std::vector<int>> orders;
  std::vector<int> order{0, 1, 2};
  do {
    orders.push_back(order);
  } while (std::next_permutation(order.begin(), order.end()));
  return orders;
}

TEST(ReproducibleTest, arrival_gives_other_bits_in_another_order) {
  std::vector<std::vector<std::vector<float>>> by_rank(3);
  push_in_orders(Backend::fake, 3, Accumulation::arrival, permutations_of_three(),
                 [&](const Session& session, const auto& sums, const Expected& expected) {
                   by_rank[static_cast<std::size_t>(session.rank())].push_back(sums);
                   expect_close(sums, expected);
                 });
  for (const auto& sums : by_rank) {
    ASSERT_EQ(sums.size(), 6U);
    // 0 1 2 keeps the small value that 0 2 1 loses.
    EXPECT_FALSE(same_bits(sums[0], sums[1]));
  }
}

TEST(ReproducibleTest, every_order_of_three_ranks_gives_the_same_bits) {
  for (const Backend backend : {Backend::fake, Backend::shm_threads}) {
    push_in_orders(backend, 3, Accumulation::reproducible, permutations_of_three(),
                   [](const Session&, const auto& sums, const Expected& expected) {
                     EXPECT_TRUE(same_bits(sums, expected.sum));
                     expect_close(sums, expected);
                   });
  }
}

TEST(ReproducibleTest, every_interleaving_of_many_microbatches_gives_the_same_bits) {
  // Rank r runs (3 r) mod 5 microbatches, rank 0 and 5 none.
  std::vector<int> order;
  for (int rank = 0; rank < 8; ++rank) {
    order.insert(order.end(), static_cast<std::size_t>(3 * rank % 5), rank);
  }
  std::vector<std::vector<int>> orders;
  std::mt19937 random(7);
  for (int i = 0; i < 12; ++i) {
    std::shuffle(order.begin(), order.end(), random);
    orders.push_back(order);
  }
  push_in_orders(Backend::fake, 8, Accumulation::reproducible, orders,
                 [](const Session&, const auto& sums, const Expected& expected) {
                   EXPECT_TRUE(same_bits(sums, expected.sum));
                   expect_close(sums, expected);
                 });
}

class ReproducibleWorldTest : public ::testing::TestWithParam<std::tuple<Backend, int>> {
 protected:
  PeerGroup group() const {
    return {.backend = std::get<0>(GetParam()), .world_size = std::get<1>(GetParam())};
  }
};

TEST_P(ReproducibleWorldTest, ranks_that_push_at_once_and_after_delays_give_the_same_bits) {
  run_ranks(group(), [](const Rank& self) {
    SessionConfig config;
    config.accumulate = Accumulation::reproducible;
    auto session = connect(self, model(), config);
    ASSERT_TRUE(session) << session.error().describe();
    const Shards shards((*session)->plan(), self.rank, integer_values(model(), 1));
    std::mt19937 random(std::random_device{}());
    for (int step = 0; step < 8; ++step) {
      // In every third step an evaluation, and in every fourth nobody has a microbatch.
      const BracketKind kind = step % 3 == 2 ? BracketKind::evaluation : BracketKind::minibatch;
      ASSERT_TRUE((*session)->open(kind, 0, 0, shards.sources()));
      if (kind == BracketKind::evaluation) {
        ASSERT_TRUE((*session)->finish(0, 0, 0));
        continue;
      }
      std::vector<int> microbatches;
      for (int rank = 0; rank < self.world_size; ++rank) {
        microbatches.push_back(step % 4 == 3 ? 0 : (rank + step) % 4);
      }
      for (int micro = 0; micro < microbatches[static_cast<std::size_t>(self.rank)]; ++micro) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
        ASSERT_TRUE(push_microbatch(**session, micro));
      }
      ASSERT_TRUE((*session)->finish(0, 0, 0));
      const auto settlement = (*session)->settle();
      ASSERT_TRUE(settlement) << settlement.error().describe();
      // Where a rank pushed nothing its slot is zero again, whatever it held a step before.
      const std::vector<float> sums = collect_all(**session);
      const Expected expected = expect_of(**session, microbatches);
      EXPECT_TRUE(same_bits(sums, expected.sum)) << "step " << step;
      expect_close(sums, expected);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, ReproducibleWorldTest,
                         ::testing::Combine(::testing::ValuesIn(backends()),
                                            ::testing::Values(1, 2, 3, 4, 8)));

TEST(ReproducibleTest, lanes_that_are_slow_change_no_bit) {
  PeerGroup group{.backend = Backend::fake, .world_size = 3};
  group.faults = [](int source, int peer, LaneOperation operation, std::uint64_t number) {
    const bool slow = operation == LaneOperation::accumulate || operation == LaneOperation::signal;
    return slow && (static_cast<std::uint64_t>(source + 2 * peer) + number) % 3 == 0
               ? Fault{.kind = Fault::Kind::delay, .delay = Milliseconds(3)}
               : Fault{};
  };
  run_ranks(group, [](const Rank& self) {
    SessionConfig config;
    config.accumulate = Accumulation::reproducible;
    auto session = connect(self, model(), config);
    ASSERT_TRUE(session) << session.error().describe();
    const Shards shards((*session)->plan(), self.rank, integer_values(model(), 1));
    ASSERT_TRUE((*session)->open(BracketKind::minibatch, 0, 0, shards.sources()));
    for (int micro = 0; micro < 3; ++micro) {
      ASSERT_TRUE(push_microbatch(**session, micro));
    }
    ASSERT_TRUE((*session)->finish(0, 0, 0));
    ASSERT_TRUE((*session)->settle());
    EXPECT_TRUE(same_bits(collect_all(**session), expect_of(**session, {3, 3, 3}).sum));
  });
}

TEST(ReproducibleTest, ranks_that_differ_in_it_are_told_so) {
  run_ranks({.backend = Backend::fake, .world_size = 2}, [](const Rank& self) {
    SessionConfig config;
    config.accumulate = self.rank == 0 ? Accumulation::reproducible : Accumulation::arrival;
    const auto session = connect(self, model(), config);
    ASSERT_FALSE(session);
    for (const char* word : {"accumulate=reproducible", "accumulate=arrival", "rank 1"}) {
      if (self.rank == 0) {
        EXPECT_NE(session.error().message.find(word), std::string::npos) << session.error().message;
      }
    }
  });
}

TEST(ReproducibleTest, the_arena_holds_a_slot_a_source_and_no_lock) {
  // As in arrival: one parameter of 1000 x 3 fp32, here over 4 ranks: 250 rows of 12 bytes a shard.
  run_ranks({.backend = Backend::shm_threads, .world_size = 4}, [](const Rank& self) {
    const ModelSpec one{
        .groups = {{.name = "g", .parameters = {{.name = "w", .rows = 1000, .row_elements = 3}}}}};
    SessionConfig config;
    config.accumulate = Accumulation::reproducible;
    auto session = connect(self, one, config);
    ASSERT_TRUE(session) << session.error().describe();
    const std::size_t page = 4096;
    // Liveness, signals, digests and records fit a page each, as do the shard and each slot.
    EXPECT_EQ((*session)->counters().arena_bytes, 4 * page + page + 4 * page);
  });
}

}  // namespace
}  // namespace headrace::testing
