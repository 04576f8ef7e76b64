#pragma once

// One rank of a lockstep session in a fault test, and what a survivor must see.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/session_group.h"

namespace headrace::testing {

inline constexpr int k_victim = 1;
inline constexpr Milliseconds k_soon{5000};
/// For what comes on any machine, however busy; less than a group's own limit.
inline constexpr Milliseconds k_patience{50'000};
inline constexpr float k_untouched = -77.0F;

struct World {
  int ranks;
  int local_ranks;
  bool worker_threads = false;
};

inline constexpr World k_worlds[] = {{2, 2},       {3, 3},       {3, 1},      {4, 2},
                                     {2, 2, true}, {3, 1, true}, {4, 2, true}};

inline void PrintTo(const World& world, std::ostream* stream) {
  *stream << world.ranks / world.local_ranks << "x" << world.local_ranks
          << (world.worker_threads ? "_worker_threads" : "");
}

inline std::string world_name(const ::testing::TestParamInfo<World>& info) {
  return ::testing::PrintToString(info.param);
}

inline ModelSpec model_of(std::int64_t rows) {
  return {.groups = {{.name = "first",
                      .parameters = {{.name = "w", .rows = rows, .row_elements = 64},
                                     {.name = "b", .rows = rows, .row_elements = 1}}},
                     {.name = "second",
                      .parameters = {{.name = "v", .rows = rows, .row_elements = 64},
                                     {.name = "a", .rows = rows, .row_elements = 1}}}}};
}

inline SessionConfig config_of(const World& world) {
  SessionConfig config;
  config.mode = SessionMode::lockstep;
  config.local_ranks = world.local_ranks;
  config.worker_threads = world.worker_threads;
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

/// Steps until one fails, which must name the victim soon after its call began, and after the time
/// of the victim's death where that is noted; every later call says the same.
inline void expect_named(Seat& seat, const std::string& words, Milliseconds limit = k_soon,
                         const std::uint64_t* died = nullptr) {
  Status status;
  std::int64_t begin = 0;
  for (int step = 0; step < 1000 && status; ++step) {
    begin = now_ns();
    status = seat.step();
  }
  ASSERT_FALSE(status) << "no survivor may finish without the victim";
  const auto since = died == nullptr ? begin : std::max(begin, static_cast<std::int64_t>(*died));
  EXPECT_LT(now_ns() - since, limit.count() * 1'000'000) << status.error().describe();
  EXPECT_EQ(status.error().rank, k_victim) << status.error().describe();
  EXPECT_NE(status.error().message.find(words), std::string::npos) << status.error().describe();
  for (const Status& again : {seat.all_gather(0), seat.reduce_scatter(1)}) {
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().rank, k_victim);
  }
}

inline constexpr std::int64_t k_many_rows = 4096;
inline constexpr std::int64_t k_few_rows = 21;

}  // namespace headrace::testing
