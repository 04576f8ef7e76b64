#pragma once

#include <string>

#include "balance/cost_model.h"
#include "base/result.h"
#include "plan/model_spec.h"

namespace headrace::replay {

/// A model whose training steps are replayed.
struct Decoder {
  ModelShape shape;
  CostModel cost;
};

/// A cost preset, "1.5B" or "7B", with the shape behind it (Qwen2's), or a Hugging Face config.json
/// or its folder, with floating-point operations as cost. Mixtures of experts are refused: their
/// parameters are not a decoder_spec.
Result<Decoder> parse_decoder(const std::string& text);

/// A decoder as FSDP2 wraps it: group 0 is the root (embedding, last norm, output projection), then
/// a group a layer (two norms, four attention and three MLP matrices), all in bf16.
///
/// Every size but the number of layers is divided by `factor`, so that matrices, and with them the
/// bytes, shrink by its square. No size falls below 1.
ModelSpec decoder_spec(const ModelShape& shape, double factor);

/// The group that stays unsharded from a microbatch's first layer to its last gradient.
inline constexpr std::size_t k_root = 0;

/// Elements of a group, or of all groups.
double elements(const GroupSpec& group);
double elements(const ModelSpec& model);

}  // namespace headrace::replay
