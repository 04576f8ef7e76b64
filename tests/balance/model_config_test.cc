#include "balance/model_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

/// The sizes of Qwen2.5-1.5B.
Json dense() {
  return {{"model_type", "qwen2"},      {"hidden_size", 1536},
          {"num_hidden_layers", 28},    {"num_attention_heads", 12},
          {"num_key_value_heads", 2},   {"intermediate_size", 8960},
          {"vocab_size", 151936},       {"max_position_embeddings", 131072},
          {"sliding_window", 131072},   {"use_sliding_window", false},
          {"tie_word_embeddings", true}};
}

/// The sizes of Qwen3-30B-A3B.
Json mixture() {
  return {{"model_type", "qwen3_moe"},
          {"hidden_size", 2048},
          {"num_hidden_layers", 48},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 4},
          {"head_dim", 128},
          {"intermediate_size", 6144},
          {"moe_intermediate_size", 768},
          {"num_experts", 128},
          {"num_experts_per_tok", 8},
          {"mlp_only_layers", Json::array()},
          {"decoder_sparse_step", 1},
          {"vocab_size", 151936},
          {"sliding_window", nullptr}};
}

Result<ModelShape> shape(const Json& json) { return shape_from_config(json.dump(), "config.json"); }

Json with(Json json, const char* field, const Json& value) {
  json[field] = value;
  return json;
}

Json without(Json json, const char* field) {
  json.erase(field);
  return json;
}

std::string message(const Json& json) {
  const Result<ModelShape> result = shape(json);
  return result ? "no error" : result.error().message;
}

TEST(ModelConfig, reads_a_decoder) {
  EXPECT_EQ(*shape(dense()), (ModelShape{.hidden = 1536,
                                         .layers = 28,
                                         .heads = 12,
                                         .kv_heads = 2,
                                         .head_size = 128,
                                         .intermediate = 8960,
                                         .vocabulary = 151936}));
}

TEST(ModelConfig, absent_or_null_fields_have_their_defaults) {
  EXPECT_EQ(shape(without(dense(), "num_key_value_heads"))->kv_heads, 12);
  EXPECT_EQ(shape(with(dense(), "num_key_value_heads", nullptr))->kv_heads, 12);
  EXPECT_EQ(shape(with(dense(), "head_dim", nullptr))->head_size, 128);
  EXPECT_EQ(shape(with(dense(), "head_dim", 64))->head_size, 64);
}

TEST(ModelConfig, a_multimodal_models_text_is_what_counts) {
  const Json nested = {{"hidden_size", 99}, {"vision_config", {{"hidden_size", 7}}}};
  EXPECT_EQ(*shape(with(nested, "text_config", dense())), *shape(dense()));
  EXPECT_THAT(message(with(nested, "text_config", without(dense(), "vocab_size"))),
              HasSubstr("config.json, text_config: there is no field 'vocab_size'"));
}

TEST(ModelConfig, errors_name_source_field_and_what_was_found) {
  for (const char* field : {"hidden_size", "num_hidden_layers", "num_attention_heads",
                            "intermediate_size", "vocab_size"}) {
    EXPECT_THAT(message(without(dense(), field)),
                AllOf(HasSubstr("config.json"), HasSubstr(fmt::format("no field '{}'", field)),
                      HasSubstr("model_type, ")));
    for (const Json& wrong : {Json("big"), Json(0), Json(-3), Json(1.5), Json::array({1})}) {
      EXPECT_THAT(message(with(dense(), field, wrong)),
                  AllOf(HasSubstr("config.json"), HasSubstr(fmt::format("'{}'", field)),
                        HasSubstr(fmt::format("not '{}'", wrong.dump()))));
    }
  }
  EXPECT_THAT(message(with(dense(), "num_attention_heads", 11)),
              AllOf(HasSubstr("'head_dim'"), HasSubstr("1536"), HasSubstr("11")));
}

TEST(ModelConfig, what_is_no_object_is_refused) {
  for (const char* text : {"", "not json", "[1, 2]", "{\"hidden_size\": ", "7"}) {
    const Result<ModelShape> result = shape_from_config(text, "there.json");
    ASSERT_FALSE(result) << text;
    EXPECT_THAT(result.error().message, AllOf(HasSubstr("there.json"), HasSubstr("JSON object")));
  }
}

TEST(ModelConfig, a_mixture_counts_the_experts_that_a_token_visits) {
  const ModelShape found = *shape(mixture());
  EXPECT_EQ(found.sparse_layers, 48);
  EXPECT_EQ(found.experts, 128);
  EXPECT_EQ(found.active_intermediate, 8 * 768);
  const double width = 2.0 * 32 * 128 + 2.0 * 4 * 128;
  const double a_layer = 2048 * (width + 3.0 * 8 * 768 + 128);
  const CostModel cost = *CostModel::from_shape(found);
  EXPECT_DOUBLE_EQ(cost.linear(), 6.0 * (48 * a_layer + 2048.0 * 151936));
  EXPECT_DOUBLE_EQ(cost.quadratic(), 6.0 * 48 * 32 * 128);
}

TEST(ModelConfig, dense_layers_of_a_mixture_count_as_dense) {
  EXPECT_EQ(shape(with(mixture(), "decoder_sparse_step", 2))->sparse_layers, 24);
  EXPECT_EQ(shape(with(mixture(), "mlp_only_layers", {0, 47, 99}))->sparse_layers, 46);
  EXPECT_EQ(shape(with(mixture(), "first_k_dense_replace", 3))->sparse_layers, 45);
  EXPECT_EQ(shape(with(mixture(), "moe_layer_freq", 4))->sparse_layers, 12);
  const CostModel all = *CostModel::from_shape(*shape(mixture()));
  const CostModel half = *CostModel::from_shape(*shape(with(mixture(), "decoder_sparse_step", 2)));
  // intermediate_size equals that of the active experts: only the routers are saved.
  EXPECT_DOUBLE_EQ(all.linear() - half.linear(), 6.0 * 24 * 2048 * 128);
}

TEST(ModelConfig, shared_experts_count) {
  EXPECT_EQ(shape(with(mixture(), "n_shared_experts", 2))->active_intermediate, 10 * 768);
  EXPECT_EQ(shape(with(mixture(), "shared_expert_intermediate_size", 5632))->active_intermediate,
            8 * 768 + 5632);
}

TEST(ModelConfig, some_mixtures_call_the_size_of_an_expert_intermediate_size) {
  Json mixtral = with(dense(), "model_type", "mixtral");
  mixtral["num_local_experts"] = 8;
  mixtral["num_experts_per_tok"] = 2;
  EXPECT_EQ(shape(mixtral)->active_intermediate, 2 * 8960);
  EXPECT_EQ(shape(mixtral)->sparse_layers, 28);
}

TEST(ModelConfig, a_mixture_that_does_not_say_a_tokens_work_is_refused) {
  EXPECT_THAT(message(without(mixture(), "num_experts_per_tok")),
              AllOf(HasSubstr("'num_experts_per_tok'"), HasSubstr("'moe_intermediate_size' is 768"),
                    HasSubstr("coefficients")));
  EXPECT_THAT(message(without(mixture(), "moe_intermediate_size")),
              HasSubstr("'moe_intermediate_size'"));
  EXPECT_THAT(message(without(mixture(), "num_experts")), HasSubstr("num_local_experts"));
  EXPECT_THAT(message(with(mixture(), "moe_layer_start_index", 3)),
              HasSubstr("'moe_layer_start_index', which is not understood"));
  // Fields that say one expert say none.
  EXPECT_TRUE(shape(with(dense(), "num_experts", 1)));
}

TEST(ModelConfig, attention_that_is_not_quadratic_is_refused) {
  EXPECT_THAT(message(with(dense(), "kv_lora_rank", 512)), HasSubstr("latent attention"));
  EXPECT_THAT(message(with(dense(), "mamba_d_state", 16)), HasSubstr("'mamba_d_state'"));
  Json window = with(dense(), "sliding_window", 4096);
  EXPECT_TRUE(shape(window)) << "use_sliding_window is false";
  EXPECT_THAT(message(without(window, "use_sliding_window")), HasSubstr("4096"));
  window["sliding_window"] = 131072;
  EXPECT_TRUE(shape(without(window, "use_sliding_window"))) << "no sample is longer";
  const Json full = with(dense(), "layer_types", {"full_attention", "full_attention"});
  EXPECT_TRUE(shape(full));
  EXPECT_THAT(message(with(full, "layer_types", {"full_attention", "linear_attention"})),
              HasSubstr("'linear_attention'"));
}

TEST(ModelConfig, sizes_beyond_reason_are_refused_at_once) {
  EXPECT_THAT(message(with(mixture(), "num_hidden_layers", std::int64_t{1} << 62)),
              HasSubstr("'num_hidden_layers' is 4611686018427387904; 1048576 is the most"));
  Json deep = 0;
  for (int level = 0; level < 1000; ++level) {
    deep = Json::array({deep});
  }
  EXPECT_THAT(message(with(dense(), "layer_types", deep)), HasSubstr("is one JSON object"));
}

TEST(ModelConfig, is_read_from_a_file_or_its_folder) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "headrace_model_config";
  std::filesystem::create_directories(folder);
  const std::string file = (folder / "config.json").string();
  std::ofstream(file) << dense().dump(2);
  EXPECT_EQ(*read_model_config(file), *shape(dense()));
  EXPECT_EQ(*read_model_config(folder.string()), *shape(dense()));
  std::filesystem::remove(file);
  EXPECT_THAT(read_model_config(folder.string()).error().message, HasSubstr(file));
}

}  // namespace
}  // namespace headrace
