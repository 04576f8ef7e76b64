// On-demand collectives on device memory: what a minibatch comes to, whatever its ranks did in it.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "collective/gather.h"
#include "collective/publish.h"
#include "collective/scatter_accumulate.h"
#include "collective/settle.h"
#include "kernel/element.h"
#include "support/cuda/cuda_group.h"
#include "support/cuda/worlds.h"

namespace headrace::testing {
namespace {

ModelSpec small_model() {
  const DType half = DType::bfloat16;
  return {
      .groups = {{.name = "first",
                  .parameters = {{.name = "a", .rows = 13, .row_elements = 7, .dtype = half},
                                 {.name = "b", .rows = 1, .row_elements = 1, .dtype = half},
                                 {.name = "c", .rows = 130, .row_elements = 33, .dtype = half}}},
                 {.name = "second",
                  .parameters = {{.name = "d", .rows = 6, .row_elements = 1},
                                 {.name = "e", .rows = 40, .row_elements = 11}}}}};
}

/// Groups without a parameter, without an element, and with hundreds that fewer ranks than there
/// are have a row of.
ModelSpec extreme_model() {
  constexpr std::int64_t k_parameters = 600;
  ModelSpec model{.groups = {{.name = "without a parameter", .parameters = {}},
                             {.name = "without an element",
                              .parameters = {{.name = "no rows", .rows = 0, .row_elements = 5},
                                             {.name = "no width", .rows = 3, .row_elements = 0}}},
                             {.name = "tiny", .parameters = {}}}};
  for (std::int64_t p = 0; p < k_parameters; ++p) {
    model.groups.back().parameters.push_back(
        {.name = std::to_string(p),
         .rows = 1 + p % 3,
         .row_elements = 1 + p % 2,
         .dtype = p % 4 == 0 ? DType::float32 : DType::bfloat16});
  }
  return model;
}

std::size_t elements(const ParameterSpec& parameter) {
  return static_cast<std::size_t>(parameter.rows * parameter.row_elements);
}

/// Small integers, which bf16 holds and fp32 sums exactly.
float value_of(std::size_t group, std::size_t parameter, std::size_t index, std::uint64_t salt) {
  return static_cast<float>((group * 31 + parameter * 7 + index * 3 + salt * 13) % 61) - 30.0F;
}

/// Microbatches of a rank in an epoch: none on some ranks in some epochs.
std::uint64_t microbatches(int rank, std::uint64_t epoch) {
  return (static_cast<std::uint64_t>(rank) * 2 + epoch) % 4;
}

std::uint64_t salt_of(int rank, std::uint64_t epoch, std::uint64_t microbatch) {
  return epoch * 100 + static_cast<std::uint64_t>(rank) * 10 + microbatch;
}

class Worker {
 public:
  Worker(const Rank& self, const ModelSpec& model, Accumulation accumulation)
      : rank_(self.rank),
        world_size_(self.world_size),
        plan_(Topology::single_node(self.world_size).value(), model, 4096, accumulation),
        memory_(self.memory()),
        sent_(static_cast<std::size_t>(self.world_size), 0) {
    TransportConfig config = self.config;
    config.memory_bytes = plan_.bytes();
    config.control_bytes = plan_.control_end();
    transport_ = self.make(config).value();
    stream_ = transport_->make_stream().value();
  }

  void minibatch(std::uint64_t epoch) {
    const BracketDigest digest{.epoch = epoch, .model = plan_.model().digest()};
    open(digest);
    check_gathers(digest);
    std::vector<std::uint64_t> touched(plan_.touched_words(), 0);
    for (std::uint64_t m = 0; m < microbatches(rank_, epoch); ++m) {
      for (std::size_t group = 0; group < plan_.groups(); ++group) {
        push(digest, group, salt_of(rank_, epoch, m), touched);
      }
    }
    const Status finished =
        finish(on_demand(), {.digest = digest, .loss_sum = 1.0, .weight = 2.0}, touched, sent_);
    ASSERT_TRUE(finished) << finished.error().describe();
    const auto settled = settle(on_demand(), digest);
    ASSERT_TRUE(settled) << settled.error().describe();
    EXPECT_EQ(settled->weight, 2.0 * world_size_);
    check_sums(epoch);
  }

  void leave() { transport_->liveness().leave(); }

 private:
  OnDemand on_demand() {
    return {.plan = plan_,
            .transport = *transport_,
            .stream = *stream_,
            .control = control_,
            .rank = rank_,
            .drain_limit = Milliseconds(20'000)};
  }

  void open(const BracketDigest& digest) {
    std::vector<std::vector<ShardSource>> sources;
    std::vector<std::vector<bool>> dirty;
    for (std::size_t group = 0; group < plan_.groups(); ++group) {
      sources.emplace_back();
      dirty.emplace_back(plan_.slots(), true);
      for (std::size_t p = 0; p < plan_.map(group).parameters(); ++p) {
        std::vector<float> shard(plan_.map(group).shard_elements(p, rank_));
        for (std::size_t i = 0; i < shard.size(); ++i) {
          shard[i] = value_of(group, p, plan_.map(group).first_element(p, rank_) + i, digest.epoch);
        }
        sources.back().push_back({.address = memory_->copy_of(shard)});
      }
    }
    const Status status = publish(on_demand(), digest, sources, dirty);
    ASSERT_TRUE(status) << status.error().describe();
  }

  void check_gathers(const BracketDigest& digest) {
    for (std::size_t group = 0; group < plan_.groups(); ++group) {
      const auto& parameters = plan_.model().groups[group].parameters;
      std::vector<void*> landings;
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        landings.push_back(memory_->copy_of(
            std::vector<std::byte>(plan_.map(group).landing_bytes(p), std::byte{0xEE})));
      }
      const Status status = gather(on_demand(), digest, group, landings);
      ASSERT_TRUE(status) << status.error().describe();
      ASSERT_TRUE(drain(on_demand()));
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        const auto landed =
            memory_->values<std::byte>(landings[p], plan_.map(group).landing_bytes(p));
        for (std::size_t i = 0; i < elements(parameters[p]); ++i) {
          const float value = parameters[p].dtype == DType::float32
                                  ? load_element<DType::float32>(landed.data(), i)
                                  : load_element<DType::bfloat16>(landed.data(), i);
          ASSERT_EQ(value, value_of(group, p, i, digest.epoch)) << parameters[p].name << " " << i;
        }
      }
    }
  }

  void push(const BracketDigest& digest, std::size_t group, std::uint64_t salt,
            std::vector<std::uint64_t>& touched) {
    const auto& parameters = plan_.model().groups[group].parameters;
    std::vector<GradientSource> gradients;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const DType dtype = p % 2 == 0 ? DType::bfloat16 : DType::float32;
      std::vector<std::byte> gradient(elements(parameters[p]) * item_size(dtype));
      for (std::size_t i = 0; i < elements(parameters[p]); ++i) {
        const float value = value_of(group, p, i, salt);
        if (dtype == DType::float32) {
          store_element<DType::float32>(gradient.data(), i, value);
        } else {
          store_element<DType::bfloat16>(gradient.data(), i, value);
        }
      }
      gradients.push_back({.parameter = p, .address = memory_->copy_of(gradient), .dtype = dtype});
      const std::size_t bit = plan_.first_parameter(group) + p;
      touched[bit / 64] |= std::uint64_t{1} << bit % 64;
    }
    const Status status = scatter_accumulate(on_demand(), digest, group, gradients, sent_);
    ASSERT_TRUE(status) << status.error().describe();
  }

  void check_sums(std::uint64_t epoch) {
    for (std::size_t group = 0; group < plan_.groups(); ++group) {
      const AddressMap& map = plan_.map(group);
      for (std::size_t p = 0; p < map.parameters(); ++p) {
        const std::size_t count = map.shard_elements(p, rank_);
        const auto sums = memory_->values<float>(
            transport_->at(plan_.accumulator_offset(group, 0) + map.accumulator_offset(p)), count);
        for (std::size_t i = 0; i < count; ++i) {
          float wanted = 0;
          for (int source = 0; source < world_size_; ++source) {
            for (std::uint64_t m = 0; m < microbatches(source, epoch); ++m) {
              wanted +=
                  value_of(group, p, map.first_element(p, rank_) + i, salt_of(source, epoch, m));
            }
          }
          ASSERT_EQ(sums[i], wanted)
              << "epoch " << epoch << " group " << group << " parameter " << p << " element " << i;
        }
      }
    }
  }

  int rank_;
  int world_size_;
  OnDemandPlan plan_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<DataMemory> memory_;
  std::unique_ptr<Stream> stream_;
  InlineStream control_;
  std::vector<std::uint64_t> sent_;
};

using Case = std::tuple<int, Accumulation>;

class DeviceOnDemand : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { skip_unless_runnable(group()); }
  static PeerGroup group() { return cuda_group(DeviceMemoryKind::mapped, std::get<0>(GetParam())); }
};

TEST_P(DeviceOnDemand, sums_are_exact_whatever_each_rank_did) {
  run_ranks(group(), [](const Rank& self) {
    Worker worker(self, small_model(), std::get<1>(GetParam()));
    for (std::uint64_t epoch = 1; epoch <= 5; ++epoch) {
      worker.minibatch(epoch);
    }
    worker.leave();
  });
}

TEST_P(DeviceOnDemand, hundreds_of_tiny_parameters_and_empty_groups_are_sums_like_others) {
  run_ranks(group(), [](const Rank& self) {
    Worker worker(self, extreme_model(), std::get<1>(GetParam()));
    worker.minibatch(1);
    worker.minibatch(2);
    worker.leave();
  });
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceOnDemand,
                         ::testing::Combine(::testing::ValuesIn(gpu_worlds()),
                                            ::testing::Values(Accumulation::arrival,
                                                              Accumulation::reproducible)));

}  // namespace
}  // namespace headrace::testing
