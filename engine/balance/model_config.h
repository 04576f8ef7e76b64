#pragma once

#include <string>
#include <string_view>

#include "balance/cost_model.h"
#include "base/result.h"

namespace headrace {

/// The file that describes a model in its folder.
inline constexpr const char* k_config_file = "config.json";

/// The shape of a decoder from the text of a Hugging Face config.json: hidden_size,
/// num_hidden_layers, num_attention_heads, num_key_value_heads (the heads where absent), head_dim
/// (hidden_size / heads where absent), intermediate_size and vocab_size, looked for in text_config
/// where there is one. Of a mixture of experts those that a token visits are counted.
///
/// Errors name `source`, the field and what was found there. Refused, because quadratic * s^2 +
/// linear * s with these sizes would be wrong: attention that is latent or in a sliding window,
/// layers other than attention, and experts described by other fields than num_experts (or
/// num_local_experts, n_routed_experts), num_experts_per_tok, moe_intermediate_size,
/// n_shared_experts, shared_expert_intermediate_size, decoder_sparse_step, mlp_only_layers,
/// first_k_dense_replace and moe_layer_freq.
Result<ModelShape> shape_from_config(std::string_view json, const std::string& source);

/// Of a file, or of the config.json in a folder.
Result<ModelShape> read_model_config(const std::string& path);

}  // namespace headrace
