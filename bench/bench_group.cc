#include "bench/bench_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "base/checked_math.h"
#include "kernel/cast.h"

namespace headrace::bench {
namespace {

constexpr int k_layers = 2;

// A layer's tensors, as parts of its elements: MLP and attention matrices, then vectors.
constexpr std::array<int, k_layer_tensors> k_parts{240, 240, 240, 90, 90, 30, 30, 20,
                                                   8,   4,   2,   2,  2,  1,  1};

// A small integer that bf16 holds exactly and that tells elements, parameters and ranks apart.
float value_at(std::size_t parameter, std::size_t element) {
  return static_cast<float>((parameter * 31 + element * 7) % 251) - 125.0F;
}

std::vector<float> values_of(std::size_t parameter, std::size_t elements) {
  std::vector<float> values(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    values[i] = value_at(parameter, i);
  }
  return values;
}

std::size_t elements_of(const ParameterSpec& parameter) {
  return static_cast<std::size_t>(parameter.rows * parameter.row_elements);
}

}  // namespace

GroupSpec bench_group(std::int64_t mib, DType dtype, int tensors_a_layer) {
  const std::int64_t elements =
      mib * (std::int64_t{1} << 20) / static_cast<std::int64_t>(item_size(dtype));
  const std::span parts = std::span(k_parts).first(static_cast<std::size_t>(tensors_a_layer));
  const int whole = std::accumulate(parts.begin(), parts.end(), 0);
  GroupSpec group{.name = "bench", .parameters = {}};
  for (int layer = 0; layer < k_layers; ++layer) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::int64_t size = std::max<std::int64_t>(1, elements / k_layers * parts[i] / whole);
      const std::int64_t row_elements =
          i < k_layer_matrices ? std::min<std::int64_t>(1024, size) : 1;
      group.parameters.push_back({.name = fmt::format("layer{}.tensor{}", layer, i),
                                  .rows = ceil_div(size, row_elements),
                                  .row_elements = row_elements,
                                  .dtype = dtype});
    }
  }
  return group;
}

void Buffer::Free::operator()(std::byte* data) const { std::free(data); }

Buffer::Buffer(std::size_t bytes)
    : data_(static_cast<std::byte*>(std::aligned_alloc(
          k_cache_line, round_up(std::max<std::size_t>(bytes, 1), k_cache_line)))),
      bytes_(bytes) {
  std::memset(data_.get(), 0, bytes);
}

RankTensors::RankTensors(const GroupSpec& group, int rank, int world_size, Needs needs)
    : group_(group), map_(group, world_size) {
  for (std::size_t p = 0; p < group.parameters.size(); ++p) {
    const ParameterSpec& parameter = group.parameters[p];
    const std::vector<float> values = values_of(p, elements_of(parameter));
    Buffer& shard = buffer(map_.block_bytes(p));
    cast(shard.data(), parameter.dtype, values.data() + map_.first_element(p, rank), DType::float32,
         map_.shard_elements(p, rank));
    shards_.push_back({.address = shard.data(), .dtype = parameter.dtype});
    if (needs.gradients) {
      Buffer& gradient = buffer(map_.landing_bytes(p));
      cast(gradient.data(), parameter.dtype, values.data(), DType::float32, values.size());
      gradients_.push_back({.parameter = p, .address = gradient.data(), .dtype = parameter.dtype});
    }
  }
  if (needs.landings) {
    std::vector<std::size_t> offsets;
    std::size_t bytes = 0;
    for (std::size_t p = 0; p < group.parameters.size(); ++p) {
      offsets.push_back(bytes);
      bytes = round_up(bytes + map_.landing_bytes(p), k_cache_line);
    }
    bytes = std::max(bytes, static_cast<std::size_t>(world_size) * map_.published_bytes());
    landing_block_ = buffer(bytes).data();
    for (const std::size_t offset : offsets) {
      landings_.push_back(landing_block_ + offset);
    }
  }
}

Buffer& RankTensors::buffer(std::size_t bytes) { return buffers_.emplace_back(bytes); }

void RankTensors::clear_landings() {
  for (std::size_t p = 0; p < landings_.size(); ++p) {
    std::memset(landings_[p], 0xff, map_.landing_bytes(p));
  }
}

bool RankTensors::landings_are_right() const {
  for (std::size_t p = 0; p < group_.parameters.size(); ++p) {
    const ParameterSpec& parameter = group_.parameters[p];
    const std::vector<float> values = values_of(p, elements_of(parameter));
    const Buffer expected(values.size() * item_size(parameter.dtype));
    cast(expected.data(), parameter.dtype, values.data(), DType::float32, values.size());
    if (std::memcmp(landings_[p], expected.data(), expected.bytes()) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace headrace::bench
