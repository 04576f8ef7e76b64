#include "balance/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "balance/json_input.h"
#include "balance/text_input.h"
#include "base/checked_math.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t k_most_listed = 12;
constexpr std::int64_t k_most_layers = 1 << 20;  ///< they are counted one by one
constexpr const char* k_way_out =
    "; give measured points or coefficients as the cost model instead";
constexpr std::array k_expert_counts = {"num_experts", "num_local_experts", "n_routed_experts"};
/// Fields about experts that are read here, or that leave a token's work as it is.
constexpr std::array k_expert_fields = {
    "num_experts",      "num_local_experts",     "n_routed_experts",
    "n_shared_experts", "num_experts_per_tok",   "shared_expert_intermediate_size",
    "moe_layer_freq",   "moe_intermediate_size",
};
/// Models whose intermediate_size is that of one expert.
constexpr std::array<std::string_view, 3> k_plain_mixtures = {"mixtral", "olmoe", "phimoe"};
/// How fields of layers other than attention begin.
constexpr std::array k_other_layers = {"mamba", "ssm_", "linear_attn", "linear_num"};

/// The object that describes the decoder, and how errors call it.
struct Config {
  const Json& fields;
  std::string name;

  const Json* find(const char* field) const {
    const auto found = fields.find(field);
    return found == fields.end() || found->is_null() ? nullptr : &*found;
  }
  Error error(const std::string& what) const {
    return operation_error(fmt::format("{}: {}", name, what));
  }
};

std::string fields_there(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [name, ignored] : object.items()) {
    if (names.size() == k_most_listed) {
      names.push_back(fmt::format("and {} more", object.size() - k_most_listed));
      break;
    }
    names.push_back(name);
  }
  return names.empty() ? "none" : joined(names);
}

Result<std::int64_t> whole(const Config& config, const char* field, std::int64_t least) {
  const Json* value = config.find(field);
  if (value == nullptr) {
    return config.error(fmt::format("there is no field '{}'; the fields there are: {}", field,
                                    fields_there(config.fields)));
  }
  if (!value->is_number_integer() || value->get<std::int64_t>() < least) {
    return config.error(fmt::format("the field '{}' must be a whole number of {} or more, not {}",
                                    field, least, excerpt(value->dump())));
  }
  return value->get<std::int64_t>();
}

Result<std::int64_t> whole_or(const Config& config, const char* field, std::int64_t least,
                              std::int64_t absent) {
  return config.find(field) == nullptr ? absent : whole(config, field, least);
}

Result<std::int64_t> head_size(const Config& config, const ModelShape& shape) {
  if (config.find("head_dim") == nullptr && shape.hidden % shape.heads != 0) {
    return config.error(fmt::format(
        "there is no field 'head_dim', and hidden_size {} is no multiple of num_attention_heads {}",
        shape.hidden, shape.heads));
  }
  return whole_or(config, "head_dim", 1, shape.hidden / shape.heads);
}

/// Attention that does not grow with the square of a sample, or has other sizes.
Status check_attention(const Config& config) {
  if (config.find("kv_lora_rank") != nullptr) {
    return config.error(
        std::string("the field 'kv_lora_rank' says latent attention, which is not counted") +
        k_way_out);
  }
  for (const auto& [name, value] : config.fields.items()) {
    if (!value.is_null() && std::ranges::any_of(k_other_layers, [&](const char* beginning) {
          return name.starts_with(beginning);
        })) {
      return config.error(
          fmt::format("the field '{}' says layers other than attention, which are not counted{}",
                      name, k_way_out));
    }
  }
  if (const Json* types = config.find("layer_types"); types != nullptr && types->is_array()) {
    const auto other =
        std::ranges::find_if(*types, [](const Json& type) { return type != "full_attention"; });
    if (other == types->end()) {
      return {};
    }
    return config.error(fmt::format(
        "the field 'layer_types' has {}, and only full_attention is counted{}",
        excerpt(other->is_string() ? other->get<std::string>() : other->dump()), k_way_out));
  }
  const Json* window = config.find("sliding_window");
  const Json* used = config.find("use_sliding_window");
  if (window == nullptr || (used != nullptr && *used == false)) {
    return {};
  }
  const Json* longest = config.find("max_position_embeddings");
  if (longest != nullptr && longest->is_number() && window->is_number() && *window >= *longest) {
    return {};
  }
  return config.error(
      fmt::format("the field 'sliding_window' is {}: attention does not grow with the square of "
                  "longer samples{}",
                  window->dump(), k_way_out));
}

bool about_experts(const std::string& name, const Json& value) {
  const bool named = name.find("expert") != std::string::npos || name.starts_with("moe_");
  return named && value.is_number_integer() && value > 1;
}

/// Layers that have experts.
Result<std::int64_t> sparse_layers(const Config& config, std::int64_t layers) {
  HEADRACE_TRY_ASSIGN(const std::int64_t every, whole_or(config, "decoder_sparse_step", 1, 1));
  HEADRACE_TRY_ASSIGN(const std::int64_t frequency, whole_or(config, "moe_layer_freq", 1, 1));
  HEADRACE_TRY_ASSIGN(const std::int64_t dense_first,
                      whole_or(config, "first_k_dense_replace", 0, 0));
  const Json* dense = config.find("mlp_only_layers");
  std::int64_t count = 0;
  for (std::int64_t layer = dense_first; layer < layers; ++layer) {
    const bool listed =
        dense != nullptr && std::any_of(dense->begin(), dense->end(),
                                        [&](const Json& named) { return named == layer; });
    count += !listed && (layer + 1) % every == 0 && layer % frequency == 0 ? 1 : 0;
  }
  return count;
}

/// Fills what a mixture of experts adds to the shape.
Result<ModelShape> with_experts(const Config& config, ModelShape shape) {
  const auto field = std::ranges::find_if(config.fields.items(), [](const auto& item) {
    return about_experts(item.key(), item.value());
  });
  if (field == config.fields.items().end()) {
    return shape;
  }
  const auto refused = [&](const std::string& what) {
    return config.error(fmt::format("a mixture of experts ('{}' is {}) {}{}", field.key(),
                                    field.value().dump(), what, k_way_out));
  };
  for (const auto& [name, value] : config.fields.items()) {
    if (about_experts(name, value) &&
        std::ranges::find(k_expert_fields, name) == k_expert_fields.end()) {
      return refused(fmt::format("with the field '{}', which is not understood", name));
    }
  }
  const auto count = std::ranges::find_if(
      k_expert_counts, [&](const char* name) { return config.find(name) != nullptr; });
  if (count == k_expert_counts.end()) {
    return refused("without a field num_experts, num_local_experts or n_routed_experts");
  }
  if (config.find("num_experts_per_tok") == nullptr) {
    return refused("without the field 'num_experts_per_tok'");
  }
  const Json* type = config.find("model_type");
  const char* size = "moe_intermediate_size";
  if (config.find(size) == nullptr) {
    if (type == nullptr || !type->is_string() ||
        std::ranges::find(k_plain_mixtures, type->get<std::string>()) == k_plain_mixtures.end()) {
      return refused(fmt::format("without the field '{}'", size));
    }
    size = "intermediate_size";
  }
  HEADRACE_TRY_ASSIGN(shape.experts, whole(config, *count, 1));
  HEADRACE_TRY_ASSIGN(const std::int64_t visited, whole(config, "num_experts_per_tok", 1));
  HEADRACE_TRY_ASSIGN(const std::int64_t shared, whole_or(config, "n_shared_experts", 0, 0));
  HEADRACE_TRY_ASSIGN(const std::int64_t width, whole(config, size, 1));
  HEADRACE_TRY_ASSIGN(const std::int64_t shared_width,
                      whole_or(config, "shared_expert_intermediate_size", 0, 0));
  HEADRACE_TRY_ASSIGN(const std::int64_t active, checked_add(visited, shared));
  HEADRACE_TRY_ASSIGN(const std::int64_t routed_width, checked_mul(active, width));
  HEADRACE_TRY_ASSIGN(shape.active_intermediate, checked_add(routed_width, shared_width));
  HEADRACE_TRY_ASSIGN(shape.sparse_layers, sparse_layers(config, shape.layers));
  return shape;
}

}  // namespace

Result<ModelShape> shape_from_config(std::string_view json, const std::string& source) {
  const Json object = parse_json(json);
  if (!object.is_object()) {
    return operation_error(fmt::format("{}: a model's configuration is one JSON object, not {}",
                                       source, json.empty() ? "nothing" : excerpt(trimmed(json))));
  }
  const auto text = object.find("text_config");
  const bool nested = text != object.end() && text->is_object();
  const Config config{.fields = nested ? *text : object,
                      .name = source + (nested ? ", text_config" : "")};
  ModelShape shape;
  HEADRACE_TRY_ASSIGN(shape.hidden, whole(config, "hidden_size", 1));
  HEADRACE_TRY_ASSIGN(shape.layers, whole(config, "num_hidden_layers", 1));
  if (shape.layers > k_most_layers) {
    return config.error(fmt::format("the field 'num_hidden_layers' is {}; {} is the most",
                                    shape.layers, k_most_layers));
  }
  HEADRACE_TRY_ASSIGN(shape.heads, whole(config, "num_attention_heads", 1));
  HEADRACE_TRY_ASSIGN(shape.kv_heads, whole_or(config, "num_key_value_heads", 1, shape.heads));
  HEADRACE_TRY(check_attention(config));
  HEADRACE_TRY_ASSIGN(shape.head_size, head_size(config, shape));
  HEADRACE_TRY_ASSIGN(shape.intermediate, whole(config, "intermediate_size", 1));
  HEADRACE_TRY_ASSIGN(shape.vocabulary, whole(config, "vocab_size", 1));
  return with_experts(config, shape);
}

Result<ModelShape> read_model_config(const std::string& path) {
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(path, ignored);
  const std::string file = folder ? (std::filesystem::path(path) / k_config_file).string() : path;
  HEADRACE_TRY_ASSIGN(const TextInput input, read_text(file));
  return shape_from_config(input.text, input.name);
}

}  // namespace headrace
