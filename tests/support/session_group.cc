#include "support/session_group.h"

#include <cstring>

#include "kernel/cast.h"

namespace headrace::testing {

Result<std::unique_ptr<Session>> connect(const Rank& self, const ModelSpec& model,
                                         SessionConfig config) {
  config.rank = self.rank;
  config.world_size = self.world_size;
  config.liveness = self.config.liveness;
  config.wait = self.config.wait;
  config.bootstrap = self.config.bootstrap;
  return Session::connect(config, model, self.make);
}

Shards::Shards(const OnDemandPlan& plan, int rank,
               const std::vector<std::vector<std::vector<float>>>& values) {
  for (std::size_t group = 0; group < plan.groups(); ++group) {
    auto& shards = shards_.emplace_back();
    for (std::size_t p = 0; p < plan.map(group).parameters(); ++p) {
      const auto first = static_cast<std::ptrdiff_t>(plan.map(group).first_element(p, rank));
      const auto count = static_cast<std::ptrdiff_t>(plan.map(group).shard_elements(p, rank));
      const auto begin = values[group][p].begin() + first;
      shards.emplace_back(begin, begin + count);
      shards.back().resize(static_cast<std::size_t>(count) +
                           1);  // an address even for an empty shard
    }
  }
}

std::vector<std::vector<ShardSource>> Shards::sources() const {
  std::vector<std::vector<ShardSource>> sources;
  for (const auto& group : shards_) {
    auto& shard_sources = sources.emplace_back();
    for (const auto& shard : group) {
      shard_sources.push_back({.address = shard.data(), .dtype = DType::float32});
    }
  }
  return sources;
}

Landings::Landings(const OnDemandPlan& plan, std::size_t group) : plan_(plan), group_(group) {
  for (std::size_t p = 0; p < plan.map(group).parameters(); ++p) {
    memory_.emplace_back(plan.map(group).landing_bytes(p) + 1, std::byte{0x5a});
  }
  for (auto& memory : memory_) {
    addresses_.push_back(memory.data());
  }
}

std::vector<float> Landings::values(std::size_t parameter) const {
  const ParameterSpec& spec = plan_.model().groups[group_].parameters[parameter];
  std::vector<float> values(static_cast<std::size_t>(spec.rows * spec.row_elements));
  cast(values.data(), DType::float32, memory_[parameter].data(), spec.dtype, values.size());
  return values;
}

std::vector<std::vector<std::vector<float>>> integer_values(const ModelSpec& model, int seed) {
  std::vector<std::vector<std::vector<float>>> values;
  int next = seed;
  for (const GroupSpec& group : model.groups) {
    auto& parameters = values.emplace_back();
    for (const ParameterSpec& parameter : group.parameters) {
      auto& elements = parameters.emplace_back();
      for (std::int64_t i = 0; i < parameter.rows * parameter.row_elements; ++i) {
        next = (next * 7 + 3) % 251;
        elements.push_back(static_cast<float>(next - 125));
      }
    }
  }
  return values;
}

}  // namespace headrace::testing
