#include "bench/bench_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "base/checked_math.h"
#include "kernel/cast.h"

namespace headrace::bench {
namespace {

constexpr int k_layers = 2;

// Fifteen tensors a layer, as parts of 1,000 of the layer's elements: MLP and attention matrices,
// then vectors.
constexpr std::array<int, 15> k_parts{240, 240, 240, 90, 90, 30, 30, 20, 8, 4, 2, 2, 2, 1, 1};

// A small integer that bf16 holds exactly and that tells elements, parameters and ranks apart.
float value_at(std::size_t parameter, std::size_t element) {
  return static_cast<float>((parameter * 31 + element * 7) % 251) - 125.0F;
}

}  // namespace

GroupSpec bench_group(std::int64_t mib, DType dtype) {
  const std::int64_t elements =
      mib * (std::int64_t{1} << 20) / static_cast<std::int64_t>(item_size(dtype));
  GroupSpec group{.name = "bench", .parameters = {}};
  for (int layer = 0; layer < k_layers; ++layer) {
    for (std::size_t i = 0; i < k_parts.size(); ++i) {
      const std::int64_t size = std::max<std::int64_t>(1, elements / k_layers * k_parts[i] / 1000);
      const std::int64_t row_elements = i < 8 ? std::min<std::int64_t>(1024, size) : 1;
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
    : data_(static_cast<std::byte*>(
          std::aligned_alloc(64, round_up(std::max<std::size_t>(bytes, 1), 64)))),
      bytes_(bytes) {
  std::memset(data_.get(), 0, bytes);
}

RankTensors::RankTensors(const GroupSpec& group, int rank, int world_size)
    : group_(group), map_(group, world_size) {
  for (std::size_t p = 0; p < group.parameters.size(); ++p) {
    const ParameterSpec& parameter = group.parameters[p];
    const auto elements = static_cast<std::size_t>(parameter.rows * parameter.row_elements);
    std::vector<float> values(elements);
    for (std::size_t i = 0; i < elements; ++i) {
      values[i] = value_at(p, i);
    }
    Buffer& shard = buffer(map_.block_bytes(p));
    cast(shard.data(), parameter.dtype, values.data() + map_.first_element(p, rank), DType::float32,
         map_.shard_elements(p, rank));
    shards_.push_back({.address = shard.data(), .dtype = parameter.dtype});
    landings_.push_back(buffer(map_.landing_bytes(p)).data());
    Buffer& gradient = buffer(map_.landing_bytes(p));
    cast(gradient.data(), parameter.dtype, values.data(), DType::float32, elements);
    gradients_.push_back({.parameter = p, .address = gradient.data(), .dtype = parameter.dtype});
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
    // A gradient holds the values of the unsharded parameter, pad rows left out.
    const ParameterSpec& parameter = group_.parameters[p];
    const auto bytes = static_cast<std::size_t>(parameter.rows * parameter.row_elements) *
                       item_size(parameter.dtype);
    if (std::memcmp(landings_[p], gradients_[p].address, bytes) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace headrace::bench
