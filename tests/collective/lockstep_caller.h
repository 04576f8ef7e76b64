#pragma once

// One rank that makes lockstep calls and knows what must come of them, and what tests have it do.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/digest.h"
#include "collective/lockstep.h"
#include "kernel/element.h"
#include "support/peer_group.h"

namespace headrace::testing {

struct World {
  int nodes = 1;
  int local_ranks = 2;

  int ranks() const { return nodes * local_ranks; }
  Topology topology() const { return Topology::make(nodes, local_ranks).value(); }
};

inline void PrintTo(const World& world, std::ostream* stream) {
  *stream << world.nodes << "x" << world.local_ranks;
}

inline ModelSpec uneven_model() {
  const DType half = DType::bfloat16;
  const DType full = DType::float32;
  return {
      .groups = {{.name = "large",
                  .parameters = {{.name = "a", .rows = 13, .row_elements = 7, .dtype = half},
                                 {.name = "b", .rows = 1, .row_elements = 1, .dtype = half},
                                 {.name = "c", .rows = 130, .row_elements = 33, .dtype = half},
                                 {.name = "d", .rows = 64, .row_elements = 129, .dtype = half}}},
                 {.name = "small",
                  .parameters = {{.name = "e", .rows = 6, .row_elements = 1, .dtype = full},
                                 {.name = "f", .rows = 0, .row_elements = 5, .dtype = full},
                                 {.name = "g", .rows = 40, .row_elements = 11, .dtype = full}}}}};
}

/// The element that rank `owner` stores at `index` of a parameter, in round `round`.
inline float element_of(std::size_t group, std::size_t parameter, std::size_t index, int round) {
  return static_cast<float>(
             (group * 31 + parameter * 7 + index * 3 + static_cast<std::size_t>(round) * 13) %
             251) -
         125.0F;
}

inline void store(void* array, DType dtype, std::size_t index, float value) {
  if (dtype == DType::float32) {
    store_element<DType::float32>(array, index, value);
  } else {
    store_element<DType::bfloat16>(array, index, value);
  }
}

inline float load(const void* array, DType dtype, std::size_t index) {
  return dtype == DType::float32 ? load_element<DType::float32>(array, index)
                                 : load_element<DType::bfloat16>(array, index);
}

inline std::size_t elements(const ParameterSpec& parameter) {
  return static_cast<std::size_t>(parameter.rows * parameter.row_elements);
}

/// One rank with everything that it needs for calls of a model.
class Caller {
 public:
  Caller(const Rank& self, const World& world, const LockstepOptions& options, Lanes lanes = {})
      : rank_(self.rank),
        plan_(LockstepPlan::make(world.topology(), uneven_model(), options, k_page).value()) {
    TransportConfig config = self.config;
    config.memory_bytes = plan_.end();
    config.control_bytes = plan_.control_end();
    transport_ = self.make(config).value();
    memory_ = self.memory();
    if (transport_->capability().device_memory) {
      lanes.streams = std::clamp(lanes.streams, std::size_t{1}, k_device_streams);
    }
    lockstep_ = Lockstep::make(&plan_, transport_.get(), rank_, config.bootstrap, lanes).value();
  }

  int rank() const { return rank_; }
  int world_size() const { return plan_.topology().world_size(); }
  Lockstep& lockstep() { return *lockstep_; }
  const LockstepPlan& plan() const { return plan_; }
  Transport& transport() { return *transport_; }
  DataMemory& memory() { return *memory_; }
  const GroupSpec& spec(std::size_t group) const { return plan_.model().groups[group]; }

  /// Gathers a group whose shards hold element_of(...) and compares every landing.
  void gather(std::size_t group, int round) {
    const std::vector<ShardSource> sources = write_shards(group, round);
    std::vector<void*> landings;
    for (std::size_t p = 0; p < spec(group).parameters.size(); ++p) {
      landings.push_back(memory_->copy_of(
          std::vector<std::byte>(plan_.map(group).landing_bytes(p), std::byte{0xEE})));
    }
    const Status status = lockstep_->all_gather(group, sources, landings);
    ASSERT_TRUE(status) << status.error().describe();
    expect_landed(group, round, landings);
  }

  /// This rank's shards of a group hold element_of(...).
  std::vector<ShardSource> write_shards(std::size_t group, int round) {
    const AddressMap& map = plan_.map(group);
    const auto& parameters = spec(group).parameters;
    std::vector<ShardSource> sources;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const std::size_t count = map.shard_elements(p, rank_);
      const bool adopted = plan_.adopted(group);
      const DType dtype = adopted ? parameters[p].dtype : DType::float32;
      std::vector<std::byte> shard(count * item_size(dtype));
      for (std::size_t i = 0; i < count; ++i) {
        store(shard.data(), dtype, i, element_of(group, p, map.first_element(p, rank_) + i, round));
      }
      std::byte* here = adopted
                            ? transport_->at(plan_.resident_offset(group) + map.published_offset(p))
                            : memory_->allocate(shard.size());
      memory_->write(here, shard.data(), shard.size());
      sources.push_back({.address = here, .dtype = dtype});
    }
    return sources;
  }

  void expect_landed(std::size_t group, int round, const std::vector<void*>& landings) {
    const auto& parameters = spec(group).parameters;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const auto landed =
          memory_->values<std::byte>(landings[p], plan_.map(group).landing_bytes(p));
      for (std::size_t i = 0; i < elements(parameters[p]); ++i) {
        ASSERT_EQ(load(landed.data(), parameters[p].dtype, i), element_of(group, p, i, round))
            << parameters[p].name << " element " << i;
      }
    }
  }

  /// What each rank of the world gives as its gradient: normal numbers or integers.
  static std::vector<float> gradient(std::size_t group, std::size_t p, std::size_t count, int rank,
                                     int round, bool integers) {
    std::mt19937 random(static_cast<unsigned>(((round * 64 + rank) * 8 + static_cast<int>(p)) * 4 +
                                              static_cast<int>(group)));
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) {
      value = integers ? static_cast<float>(random() % 17) - 8.0F : normal(random);
    }
    return values;
  }

  /// Reduces and returns the packed output; compares it with a sum in fp64.
  std::vector<float> reduce(std::size_t group, DType dtype, int round, bool integers,
                            float alpha = 1.0F, bool accumulate = false) {
    const AddressMap& map = plan_.map(group);
    const auto& parameters = spec(group).parameters;
    std::vector<GradientSource> sources;
    std::vector<float> output(map.accumulator_bytes() / sizeof(float), 0.5F);
    float* packed = memory_->copy_of(output);
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const std::size_t count = elements(parameters[p]);
      const std::vector<float> values = gradient(group, p, count, rank_, round, integers);
      std::vector<std::byte> gradient(count * item_size(dtype));
      for (std::size_t i = 0; i < count; ++i) {
        store(gradient.data(), dtype, i, values[i]);
      }
      sources.push_back({.parameter = p, .address = memory_->copy_of(gradient), .dtype = dtype});
    }
    const Status status =
        lockstep_->reduce_scatter(group, sources, packed, alpha, accumulate, accumulate);
    EXPECT_TRUE(status) << status.error().describe();
    output = memory_->values<float>(packed, output.size());
    for (std::size_t p = 0; status && p < parameters.size(); ++p) {
      const std::size_t first = map.first_element(p, rank_);
      std::vector<double> expected(map.shard_elements(p, rank_), 0.0);
      for (int rank = 0; rank < plan_.topology().world_size(); ++rank) {
        const std::vector<float> values =
            gradient(group, p, elements(parameters[p]), rank, round, integers);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          std::array<std::byte, 4> rounded{};
          store(rounded.data(), dtype, 0, values[first + i]);
          expected[i] += load(rounded.data(), dtype, 0);
        }
      }
      const float* rows = output.data() + map.accumulator_offset(p) / sizeof(float);
      double largest = 1.0;
      for (const double value : expected) {
        largest = std::max(largest, std::abs(value));
      }
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const double wanted = alpha * expected[i] + (accumulate ? 0.5 : 0.0);
        EXPECT_LE(std::abs(rows[i] - wanted), integers ? 0.0 : 1e-5 * largest)
            << parameters[p].name << " element " << i;
        if (std::abs(rows[i] - wanted) > 1e-5 * largest) {
          return output;
        }
      }
    }
    return output;
  }

  void leave() { transport_->liveness().leave(); }

 private:
  int rank_;
  static constexpr std::size_t k_device_streams = 2;

  LockstepPlan plan_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<DataMemory> memory_;
  std::unique_ptr<Lockstep> lockstep_;
};

inline LockstepOptions small_chunks() {
  LockstepOptions options;
  options.adopted = {false, true};
  options.reduce_scatter.chunk_bytes = 512;
  return options;
}

inline void gather_call_after_call(Caller& caller) {
  for (int round = 0; round < 5; ++round) {
    caller.gather(0, round);
    caller.gather(1, round);
    caller.gather(1, round + 1);
  }
}

inline void reduce_call_after_call(Caller& caller) {
  for (int round = 0; round < 3; ++round) {
    caller.reduce(0, DType::bfloat16, round, false);
    caller.reduce(1, DType::float32, round, false);
    caller.reduce(0, DType::float32, round, false, 0.25F);
    caller.reduce(0, DType::bfloat16, round, true);
    caller.reduce(0, DType::bfloat16, round, true, 0.5F, true);
  }
}

inline void take_turns(Caller& caller) {
  for (int round = 0; round < 4; ++round) {
    caller.gather(0, round);
    caller.gather(1, round);
    caller.reduce(1, DType::float32, round, true);
    caller.gather(0, round);
    caller.reduce(0, DType::bfloat16, round, true);
  }
}

inline void plan_nothing_more(Caller& caller) {
  const std::size_t gathers = caller.plan().groups();
  EXPECT_EQ(caller.lockstep().programs(), gathers);
  for (int round = 0; round < 3; ++round) {
    caller.gather(0, round);
    caller.reduce(0, DType::bfloat16, round, true);
    caller.reduce(0, DType::float32, round, true);
    EXPECT_EQ(caller.lockstep().programs(), gathers + 2) << "round " << round;
  }
}

inline void alternate(Caller& caller) {
  for (int round = 0; round < 6; ++round) {
    caller.gather(0, round);
    caller.reduce(1, DType::float32, round, true);
    caller.gather(1, round);
    caller.reduce(0, DType::bfloat16, round, false);
  }
}

inline void reduce_one_parameter(Caller& caller) {
  const AddressMap& map = caller.plan().map(0);
  const float* ones = caller.memory().copy_of(std::vector<float>(130 * 33, 1.0F));
  std::vector<float> output(map.accumulator_bytes() / sizeof(float), -7.0F);
  float* packed = caller.memory().copy_of(output);
  for (int round = 0; round < 2; ++round) {
    const GradientSource source{.parameter = 2, .address = ones};
    ASSERT_TRUE(caller.lockstep().reduce_scatter(0, {&source, 1}, packed, 1.0F, false, false));
    output = caller.memory().values<float>(packed, output.size());
    for (const std::size_t p : {std::size_t{0}, std::size_t{2}, std::size_t{3}}) {
      const float* rows = output.data() + map.accumulator_offset(p) / sizeof(float);
      for (std::size_t i = 0; i < map.shard_elements(p, caller.rank()); ++i) {
        if (p == 2) {
          ASSERT_EQ(rows[i], static_cast<float>(caller.world_size()));
        } else if (caller.world_size() <= caller.plan().topology().local_ranks()) {
          ASSERT_EQ(rows[i], -7.0F);
        }
      }
    }
  }
}

inline void reduce_infinities(Caller& caller) {
  const AddressMap& map = caller.plan().map(1);
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> values(40 * 11, 1.0F);
  values[0] = inf;
  values[1] = caller.rank() == 0 ? inf : -inf;
  values[2] = caller.rank() == 0 ? std::nanf("") : 1.0F;
  std::vector<float> output(map.accumulator_bytes() / sizeof(float));
  float* packed = caller.memory().copy_of(output);
  const GradientSource source{.parameter = 2, .address = caller.memory().copy_of(values)};
  ASSERT_TRUE(caller.lockstep().reduce_scatter(1, {&source, 1}, packed, 1.0F, false, false));
  output = caller.memory().values<float>(packed, output.size());
  if (caller.rank() == 0) {
    const float* rows = output.data() + map.accumulator_offset(2) / sizeof(float);
    EXPECT_EQ(rows[0], inf);
    EXPECT_EQ(std::isnan(rows[1]), caller.world_size() > 1);
    EXPECT_TRUE(std::isnan(rows[2]));
    EXPECT_EQ(rows[3], static_cast<float>(caller.world_size()));
  }
}

}  // namespace headrace::testing
