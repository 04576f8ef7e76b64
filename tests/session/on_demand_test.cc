// Brackets over every backend: what is gathered, what is summed, whatever each rank does in
// between.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "support/session_group.h"

namespace headrace::testing {
namespace {

// Uneven and tiny: fewer rows than ranks, one element a row, empty, mixed dtypes.
ModelSpec awkward_model() {
  return {
      .groups = {{.name = "root",
                  .parameters =
                      {{.name = "embedding", .rows = 6, .row_elements = 1},
                       {.name = "scale", .rows = 1, .row_elements = 1},
                       {.name = "head", .rows = 13, .row_elements = 7, .dtype = DType::bfloat16}}},
                 {.name = "empty", .parameters = {}},
                 {.name = "block",
                  .parameters = {
                      {.name = "weight", .rows = 257, .row_elements = 33},
                      {.name = "none", .rows = 0, .row_elements = 5},
                      {.name = "bias", .rows = 3, .row_elements = 1, .dtype = DType::bfloat16}}}}};
}

class OnDemandTest : public ::testing::TestWithParam<std::tuple<Backend, int, bool>> {
 protected:
  PeerGroup group() const {
    return {.backend = std::get<0>(GetParam()), .world_size = std::get<1>(GetParam())};
  }
  static Result<std::unique_ptr<Session>> connect(const Rank& self, const ModelSpec& model) {
    SessionConfig config;
    config.worker_threads = std::get<2>(GetParam());
    return testing::connect(self, model, config);
  }
};

void expect_gathers(Session& session, const std::vector<std::vector<std::vector<float>>>& values) {
  for (std::size_t group = 0; group < session.plan().groups(); ++group) {
    Landings landings(session.plan(), group);
    const Status status = session.gather(group, landings.addresses());
    ASSERT_TRUE(status) << status.error().describe();
    for (std::size_t p = 0; p < values[group].size(); ++p) {
      ASSERT_EQ(landings.values(p), values[group][p])
          << session.plan().model().groups[group].parameters[p].name;
    }
  }
}

// Pushes one gradient a parameter: `factor` times the parameter's values.
void push_all(Session& session, const std::vector<std::vector<std::vector<float>>>& values,
              float factor) {
  std::vector<std::vector<std::vector<float>>> in_flight;
  std::uint64_t last = 0;
  for (std::size_t group = 0; group < session.plan().groups(); ++group) {
    auto& gradients = in_flight.emplace_back(values[group]);  // its elements stay where they are
    std::vector<GradientSource> sources;
    for (std::size_t p = 0; p < gradients.size(); ++p) {
      for (float& element : gradients[p]) {
        element *= factor;
      }
      sources.push_back({.parameter = p, .address = gradients[p].data(), .dtype = DType::float32});
    }
    const auto ticket = session.push(group, sources);
    ASSERT_TRUE(ticket) << ticket.error().describe();
    last = *ticket;
  }
  ASSERT_TRUE(session.wait_pushed(last));
}

void expect_sums(Session& session, const std::vector<std::vector<std::vector<float>>>& values,
                 float factor) {
  for (std::size_t group = 0; group < session.plan().groups(); ++group) {
    const AddressMap& map = session.plan().map(group);
    for (std::size_t p = 0; p < map.parameters(); ++p) {
      std::vector<float> sum(map.shard_elements(p, session.rank()) + 1, -1.0F);
      ASSERT_TRUE(session.collect(group, p, sum.data(), DType::float32, 1.0F, false));
      const std::size_t first = map.first_element(p, session.rank());
      for (std::size_t i = 0; i + 1 < sum.size(); ++i) {
        ASSERT_EQ(sum[i], factor * values[group][p][first + i])
            << "parameter " << p << " row element " << i;
      }
      ASSERT_EQ(sum.back(), -1.0F);
    }
  }
}

TEST_P(OnDemandTest,
       gathers_are_exact_and_sums_complete_with_any_number_of_microbatches_on_each_rank) {
  run_ranks(group(), [](const Rank& self) {
    auto session = connect(self, awkward_model());
    ASSERT_TRUE(session) << session.error().describe();
    for (int step = 0; step < 6; ++step) {
      const auto values = integer_values(awkward_model(), step);
      const Shards shards((*session)->plan(), self.rank, values);
      ASSERT_TRUE((*session)->open(BracketKind::minibatch, 0, 0, shards.sources()));
      // Rank r runs (r + step) mod 4 microbatches: in every step some rank has none.
      int everyone = 0;
      for (int rank = 0; rank < self.world_size; ++rank) {
        everyone += (rank + step) % 4;
      }
      const int mine = (self.rank + step) % 4;
      for (int micro = 0; micro < mine; ++micro) {
        expect_gathers(**session, values);
        push_all(**session, values, 1.0F);
      }
      ASSERT_TRUE((*session)->finish(mine, 2.0 * mine, 1U << self.rank));
      const auto settlement = (*session)->settle();
      ASSERT_TRUE(settlement) << settlement.error().describe();
      EXPECT_EQ(settlement->loss_sum, everyone);
      EXPECT_EQ(settlement->weight, 2.0 * everyone);
      EXPECT_EQ(settlement->flags, (1U << self.world_size) - 1);
      expect_sums(**session, values, static_cast<float>(everyone));
    }
  });
}

TEST_P(OnDemandTest, evaluation_between_minibatches_never_sees_a_mixed_version) {
  run_ranks(group(), [](const Rank& self) {
    auto session = connect(self, awkward_model());
    ASSERT_TRUE(session) << session.error().describe();
    for (int step = 0; step < 12; ++step) {
      const auto values = integer_values(awkward_model(), 17 * step);
      const Shards shards((*session)->plan(), self.rank, values);
      const bool evaluation = step % 3 != 0;
      ASSERT_TRUE((*session)->open(evaluation ? BracketKind::evaluation : BracketKind::minibatch, 0,
                                   0, shards.sources()));
      for (int batch = 0; batch < (self.rank * 3 + step) % 4; ++batch) {
        expect_gathers(**session, values);
      }
      ASSERT_TRUE((*session)->finish(0, 0, 0));
      if (!evaluation) {
        ASSERT_TRUE((*session)->settle());
      }
    }
  });
}

TEST_P(OnDemandTest, a_parameter_that_no_rank_pushed_is_untouched_and_the_next_sum_starts_at_zero) {
  run_ranks(group(), [](const Rank& self) {
    const ModelSpec model = awkward_model();
    const auto values = integer_values(model, 1);
    auto session = connect(self, model);
    ASSERT_TRUE(session) << session.error().describe();
    const Shards shards((*session)->plan(), self.rank, values);
    for (int step = 0; step < 3; ++step) {
      ASSERT_TRUE((*session)->open(BracketKind::minibatch, 0, 0, shards.sources()));
      // Only the last rank pushes, and only `bias`, which is third in its group: addressed by
      // parameter.
      const std::vector<float> gradient{1.0F, 2.0F, 4.0F};
      if (self.rank == self.world_size - 1) {
        const std::vector<GradientSource> sources{
            {.parameter = 2, .address = gradient.data(), .dtype = DType::float32}};
        ASSERT_TRUE((*session)->push(2, sources));
      }
      ASSERT_TRUE((*session)->finish(0, 0, 0));
      const auto settlement = (*session)->settle();
      ASSERT_TRUE(settlement) << settlement.error().describe();
      // Parameters in order: embedding, scale, head, weight, none, bias.
      EXPECT_EQ(settlement->touched, (std::vector<std::uint64_t>{1U << 5}));
      const AddressMap& map = (*session)->plan().map(2);
      std::vector<float> sum(map.shard_elements(2, self.rank));
      ASSERT_TRUE((*session)->collect(2, 2, sum.data(), DType::float32, 0.5F, false));
      for (std::size_t i = 0; i < sum.size(); ++i) {
        EXPECT_EQ(sum[i], 0.5F * gradient[map.first_element(2, self.rank) + i]);
      }
    }
  });
}

TEST_P(OnDemandTest, fifty_groups) {
  ModelSpec model;
  for (int i = 0; i < 50; ++i) {
    model.groups.push_back(
        {.name = fmt::format("g{}", i),
         .parameters = {
             {.name = fmt::format("w{}", i), .rows = 5 + i, .row_elements = 1 + i % 3}}});
  }
  run_ranks(group(), [&model](const Rank& self) {
    auto session = connect(self, model);
    ASSERT_TRUE(session) << session.error().describe();
    const auto values = integer_values(model, 5);
    const Shards shards((*session)->plan(), self.rank, values);
    for (int step = 0; step < 2; ++step) {
      ASSERT_TRUE((*session)->open(BracketKind::minibatch, 0, 0, shards.sources()));
      expect_gathers(**session, values);
      push_all(**session, values, 1.0F);
      ASSERT_TRUE((*session)->finish(0, 0, 0));
      ASSERT_TRUE((*session)->settle());
      expect_sums(**session, values, static_cast<float>(self.world_size));
    }
  });
}

TEST_P(OnDemandTest, ranks_that_disagree_about_a_bracket_are_told_what_differs) {
  if (std::get<1>(GetParam()) == 1) {
    return;  // a rank alone agrees with itself
  }
  struct Difference {
    BracketKind kind;
    double weight;
    std::uint64_t plan;
    const char* named;
  };
  for (const Difference& difference : {Difference{BracketKind::evaluation, 8, 5, "evaluation()"},
                                       Difference{BracketKind::minibatch, 9, 5, "global count"},
                                       Difference{BracketKind::minibatch, 8, 6, "another plan"}}) {
    run_ranks(group(), [&difference](const Rank& self) {
      auto session = connect(self, awkward_model());
      ASSERT_TRUE(session) << session.error().describe();
      const auto values = integer_values(awkward_model(), 1);
      const Shards shards((*session)->plan(), self.rank, values);
      const bool odd = self.rank == 1;
      // A rank that comes late hears of it from the others when it enters.
      const auto opened = (*session)->open(odd ? difference.kind : BracketKind::minibatch,
                                           odd ? difference.weight : 8, odd ? difference.plan : 5,
                                           shards.sources());
      Landings landings((*session)->plan(), 0);
      const Status status =
          opened ? (*session)->gather(0, landings.addresses()) : Status(opened.error());
      ASSERT_FALSE(status);
      EXPECT_NE(status.error().message.find(difference.named), std::string::npos)
          << status.error().message;
      // The session is over, and says why again.
      EXPECT_FALSE((*session)->finish(0, 0, 0));
    });
  }
}

TEST_P(OnDemandTest, a_rank_that_leaves_early_is_named) {
  if (std::get<1>(GetParam()) == 1) {
    return;
  }
  run_ranks(group(), [](const Rank& self) {
    auto session = connect(self, awkward_model());
    ASSERT_TRUE(session) << session.error().describe();
    const auto values = integer_values(awkward_model(), 1);
    const Shards shards((*session)->plan(), self.rank, values);
    const auto minibatch = [&]() -> Status {
      HEADRACE_TRY((*session)->open(BracketKind::minibatch, 0, 0, shards.sources()));
      HEADRACE_TRY((*session)->finish(0, 0, 0));
      HEADRACE_TRY((*session)->settle());
      return {};
    };
    Status status = minibatch();
    ASSERT_TRUE(status) << status.error().describe();
    status = minibatch();
    if (self.rank == 1) {
      ASSERT_TRUE(status) << status.error().describe();
      (*session)->close();
      return;
    }
    // A rank that is late in its second may hear already what another has met in its third.
    if (status) {
      status = minibatch();
    }
    ASSERT_FALSE(status) << "a minibatch without rank 1";
    EXPECT_EQ(status.error().rank, 1) << status.error().describe();
    EXPECT_NE(status.error().message.find("left"), std::string::npos);
    (*session)->close();
  });
}

INSTANTIATE_TEST_SUITE_P(All, OnDemandTest,
                         ::testing::Combine(::testing::ValuesIn(backends()),
                                            ::testing::Values(1, 2, 3, 4, 8), ::testing::Bool()));

TEST(SessionTest, wrong_calls_are_told_what_to_do_and_change_nothing) {
  run_ranks({.backend = Backend::fake, .world_size = 1}, [](const Rank& self) {
    auto session = connect(self, awkward_model());
    ASSERT_TRUE(session) << session.error().describe();
    const auto values = integer_values(awkward_model(), 1);
    const Shards shards((*session)->plan(), self.rank, values);
    Landings landings((*session)->plan(), 0);

    const Status outside = (*session)->gather(0, landings.addresses());
    ASSERT_FALSE(outside);
    EXPECT_EQ(outside.error().scope, Scope::operation);
    EXPECT_NE(outside.error().message.find("engine.minibatch()"), std::string::npos);
    EXPECT_FALSE((*session)->settle());

    ASSERT_TRUE((*session)->open(BracketKind::evaluation, 0, 0, shards.sources()));
    EXPECT_FALSE((*session)->open(BracketKind::minibatch, 0, 0, shards.sources()));
    EXPECT_FALSE((*session)->gather(99, landings.addresses()));
    const std::vector<void*> too_few(1, nullptr);
    EXPECT_FALSE((*session)->gather(0, too_few));
    const std::vector<float> gradient(6);
    const GradientSource source{.parameter = 0, .address = gradient.data()};
    const auto backward = (*session)->push(0, {source});
    ASSERT_FALSE(backward);
    EXPECT_NE(backward.error().message.find("evaluation()"), std::string::npos);
    ASSERT_TRUE((*session)->finish(0, 0, 0));

    ASSERT_TRUE((*session)->open(BracketKind::minibatch, 0, 0, shards.sources()));
    EXPECT_FALSE((*session)->push(0, {source, source}));
    EXPECT_FALSE((*session)->push(0, {{.parameter = 3, .address = gradient.data()}}));
    EXPECT_TRUE((*session)->push(0, {source}));
    ASSERT_TRUE((*session)->finish(0, 0, 0));
    ASSERT_TRUE((*session)->settle());
    (*session)->close();
    (*session)->close();
    EXPECT_FALSE((*session)->open(BracketKind::minibatch, 0, 0, shards.sources()));
  });
}

TEST(SessionTest, the_arena_has_the_size_that_the_closed_form_gives) {
  // One parameter of 1000 x 3 fp32 over 2 ranks: 500 rows of 12 bytes a shard.
  run_ranks({.backend = Backend::shm_threads, .world_size = 2}, [](const Rank& self) {
    const ModelSpec model{
        .groups = {{.name = "g", .parameters = {{.name = "w", .rows = 1000, .row_elements = 3}}}}};
    auto session = connect(self, model);
    ASSERT_TRUE(session) << session.error().describe();
    const std::size_t page = 4096;
    // Liveness, signals, digests, records and locks fit a page each; shard and accumulators take
    // 6,000 bytes each.
    EXPECT_EQ((*session)->counters().arena_bytes, 5 * page + 2 * page + 2 * page);
  });
}

}  // namespace
}  // namespace headrace::testing
