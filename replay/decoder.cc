#include "replay/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "balance/model_config.h"

namespace headrace::replay {
namespace {

constexpr std::array<std::pair<std::string_view, ModelShape>, 2> k_shapes{{
    {"1.5B",
     {.hidden = 1536,
      .layers = 28,
      .heads = 12,
      .kv_heads = 2,
      .head_size = 128,
      .intermediate = 8960,
      .vocabulary = 151'936}},
    {"7B",
     {.hidden = 3584,
      .layers = 28,
      .heads = 28,
      .kv_heads = 4,
      .head_size = 128,
      .intermediate = 18'944,
      .vocabulary = 152'064}},
}};

class Scaled {
 public:
  explicit Scaled(double factor) : factor_(factor) {}
  std::int64_t size(std::int64_t full) const {
    return std::max<std::int64_t>(1, std::llround(static_cast<double>(full) / factor_));
  }
  ParameterSpec matrix(std::string name, std::int64_t rows, std::int64_t columns) const {
    return {.name = std::move(name),
            .rows = size(rows),
            .row_elements = size(columns),
            .dtype = DType::bfloat16};
  }
  ParameterSpec vector(std::string name, std::int64_t rows) const {
    return {
        .name = std::move(name), .rows = size(rows), .row_elements = 1, .dtype = DType::bfloat16};
  }

 private:
  double factor_;
};

}  // namespace

Result<Decoder> parse_decoder(const std::string& text) {
  for (const auto& [preset, shape] : k_shapes) {
    if (preset == text) {
      HEADRACE_TRY_ASSIGN(const CostModel cost, CostModel::preset(text));
      return Decoder{.shape = shape, .cost = cost};
    }
  }
  HEADRACE_TRY_ASSIGN(const ModelShape shape, read_model_config(text));
  if (shape.experts > 0) {
    return operation_error(fmt::format(
        "{} describes a mixture of {} experts; replay knows decoders whose layers are all dense",
        text, shape.experts));
  }
  HEADRACE_TRY_ASSIGN(const CostModel cost, CostModel::from_shape(shape));
  return Decoder{.shape = shape, .cost = cost};
}

ModelSpec decoder_spec(const ModelShape& shape, double factor) {
  const Scaled scaled(factor);
  const std::int64_t queries = shape.heads * shape.head_size;
  const std::int64_t keys = shape.kv_heads * shape.head_size;
  ModelSpec model;
  model.groups.push_back({.name = "root",
                          .parameters = {
                              scaled.matrix("embedding", shape.vocabulary, shape.hidden),
                              scaled.vector("norm", shape.hidden),
                              scaled.matrix("output", shape.vocabulary, shape.hidden),
                          }});
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    model.groups.push_back({.name = fmt::format("layer{}", layer),
                            .parameters = {
                                scaled.vector("attention_norm", shape.hidden),
                                scaled.matrix("query", queries, shape.hidden),
                                scaled.matrix("key", keys, shape.hidden),
                                scaled.matrix("value", keys, shape.hidden),
                                scaled.matrix("attention_output", shape.hidden, queries),
                                scaled.vector("mlp_norm", shape.hidden),
                                scaled.matrix("gate", shape.intermediate, shape.hidden),
                                scaled.matrix("up", shape.intermediate, shape.hidden),
                                scaled.matrix("down", shape.hidden, shape.intermediate),
                            }});
  }
  return model;
}

double elements(const GroupSpec& group) {
  double sum = 0;
  for (const ParameterSpec& parameter : group.parameters) {
    sum += static_cast<double>(parameter.rows) * static_cast<double>(parameter.row_elements);
  }
  return sum;
}

double elements(const ModelSpec& model) {
  double sum = 0;
  for (const GroupSpec& group : model.groups) {
    sum += elements(group);
  }
  return sum;
}

}  // namespace headrace::replay
