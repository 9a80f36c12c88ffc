// llmc/model/config_published_test.cpp: config.json as it lies beside published models, with all of
// its fields: each gives the model that its authors describe, and what would change that model's
// mathematics is refused by name.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "llmc/model/config.h"
#include "llmc/model/config_testing.h"
#include "llmc/model/parameters.h"

namespace {

struct Published {
    const char* name;    // on Hugging Face
    int64_t parameters;  // tied ones once
    int max_T;
    const char* json;
};

// clang-format off
const Published kPublished[] = {
{"openai-community/gpt2", 124439808, 1024, R"({
  "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
  "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12,
  "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": null,
  "summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type": "cls_index",
  "summary_use_proj": true, "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
  "vocab_size": 50257})"},
{"openai-community/gpt2-medium", 354823168, 1024, R"({
  "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
  "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 1024, "n_head": 16,
  "n_layer": 24, "n_positions": 1024, "n_special": 0, "predict_special_tokens": true, "resid_pdrop": 0.1,
  "summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true,
  "summary_type": "cls_index", "summary_use_proj": true,
  "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}, "vocab_size": 50257})"},
{"openai-community/gpt2-xl", 1557611200, 1024, R"({
  "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
  "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 1600, "n_head": 25,
  "n_layer": 48, "n_positions": 1024, "output_past": true, "resid_pdrop": 0.1, "summary_activation": null,
  "summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type": "cls_index",
  "summary_use_proj": true, "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
  "vocab_size": 50257})"},
{"distilbert/distilgpt2", 81912576, 1024, R"({
  "_num_labels": 1, "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
  "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "id2label": {"0": "LABEL_0"},
  "initializer_range": 0.02, "label2id": {"LABEL_0": 0}, "layer_norm_epsilon": 1e-05, "model_type": "gpt2",
  "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 6, "n_positions": 1024, "resid_pdrop": 0.1,
  "summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true,
  "summary_type": "cls_index", "summary_use_proj": true,
  "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}, "vocab_size": 50257})"},
{"a GPT-2 as transformers 4.57 saves it", 124439808, 1024, R"({
  "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
  "bos_token_id": 50256, "dtype": "float32", "embd_pdrop": 0.1, "eos_token_id": 50256,
  "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_embd": 768, "n_head": 12,
  "n_inner": null, "n_layer": 12, "n_positions": 1024, "reorder_and_upcast_attn": false, "resid_pdrop": 0.1,
  "scale_attn_by_inverse_layer_idx": false, "scale_attn_weights": true, "summary_activation": null,
  "summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type": "cls_index",
  "summary_use_proj": true, "transformers_version": "4.57.1", "use_cache": true, "vocab_size": 50257})"},
{"TinyLlama/TinyLlama-1.1B-Chat-v1.0", 1100048384, 2048, R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "bos_token_id": 1, "eos_token_id": 2,
  "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 5632,
  "max_position_embeddings": 2048, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 22,
  "num_key_value_heads": 4, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
  "rope_theta": 10000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "transformers_version": "4.35.0", "use_cache": true, "vocab_size": 32000})"},
{"meta-llama/Llama-2-7b-hf", 6738415616, 4096, R"({
  "_name_or_path": "meta-llama/Llama-2-7b-hf", "architectures": ["LlamaForCausalLM"], "bos_token_id": 1,
  "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
  "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "pretraining_tp": 1,
  "rms_norm_eps": 1e-05, "rope_scaling": null, "tie_word_embeddings": false, "torch_dtype": "float16",
  "transformers_version": "4.31.0.dev0", "use_cache": true, "vocab_size": 32000})"},
{"meta-llama/Meta-Llama-3-8B", 8030261248, 8192, R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 128000, "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 4096,
  "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 8192,
  "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
  "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 500000.0,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.40.0.dev0",
  "use_cache": true, "vocab_size": 128256})"},
{"meta-llama/Llama-3.1-8B-Instruct", 8030261248, 131072, R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "hidden_act": "silu", "hidden_size": 4096,
  "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": false,
  "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
  "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0,
  "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "transformers_version": "4.42.3", "use_cache": true, "vocab_size": 128256})"},
{"meta-llama/Llama-3.2-1B", 1235814400, 131072, R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
  "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
  "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
  "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0,
  "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256})"},
{"unsloth/Llama-3.2-1B", 1235814400, 131072, R"({
  "_name_or_path": "meta-llama/Llama-3.2-1B", "architectures": ["LlamaForCausalLM"], "attention_bias": false,
  "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64,
  "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
  "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32,
  "num_hidden_layers": 16, "num_key_value_heads": 8, "pad_token_id": 128004, "pretraining_tp": 1,
  "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
  "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
  "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.45.2",
  "unsloth_fixed": true, "use_cache": true, "vocab_size": 128256})"},
{"HuggingFaceTB/SmolLM2-135M", 134515008, 8192, R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 0,
  "eos_token_id": 0, "hidden_act": "silu", "hidden_size": 576, "initializer_range": 0.041666666666666664,
  "intermediate_size": 1536, "is_llama_config": true, "max_position_embeddings": 8192, "model_type": "llama",
  "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3, "pretraining_tp": 1,
  "rms_norm_eps": 1e-05, "rope_interleaved": false, "rope_scaling": null, "rope_theta": 100000,
  "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.40.1", "use_cache": true,
  "vocab_size": 49152})"},
{"HuggingFaceTB/SmolLM2-135M-Instruct", 134515008, 8192, R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 1,
  "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 576, "initializer_range": 0.041666666666666664,
  "intermediate_size": 1536, "is_llama_config": true, "max_position_embeddings": 8192, "mlp_bias": false,
  "model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3,
  "pad_token_id": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_interleaved": false,
  "rope_scaling": null, "rope_theta": 100000, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16", "fp16": "float16"}},
  "transformers_version": "4.42.3", "use_cache": true, "vocab_size": 49152})"},
{"Qwen/Qwen2-0.5B", 494032768, 131072, R"({
  "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
  "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
  "intermediate_size": 4864, "max_position_embeddings": 131072, "max_window_layers": 24, "model_type": "qwen2",
  "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "transformers_version": "4.40.1", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})"},
{"Qwen/Qwen2.5-0.5B", 494032768, 32768, R"({
  "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
  "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
  "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24, "model_type": "qwen2",
  "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "transformers_version": "4.40.1", "use_cache": true, "use_mrope": false, "use_sliding_window": false,
  "vocab_size": 151936})"},
{"Qwen/Qwen2.5-7B", 7615616512, 131072, R"({
  "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
  "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02,
  "intermediate_size": 18944, "max_position_embeddings": 131072, "max_window_layers": 28, "model_type": "qwen2",
  "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "transformers_version": "4.40.1", "use_cache": true, "use_mrope": false, "use_sliding_window": false,
  "vocab_size": 152064})"},
{"Qwen/Qwen3-0.6B", 596049920, 40960, R"({
  "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024,
  "initializer_range": 0.02, "intermediate_size": 3072, "max_position_embeddings": 40960,
  "max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
  "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
  "sliding_window": null, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})"},
};
// clang-format on

const Published& published(const std::string& name) {
    for (const Published& p : kPublished)
        if (name == p.name) return p;
    throw std::runtime_error("no such model: " + name);
}

}  // namespace

TEST(published, each_config_is_taken_and_gives_the_model_of_its_authors) {
    for (const Published& p : kPublished) {
        SCOPED_TRACE(p.name);
        ModelConfig c;
        const std::string error =
            error_of([&] { c = model_config_from_json(nlohmann::json::parse(p.json), p.name); });
        ASSERT_EQ(error, "no error");
        EXPECT_EQ(param_layout(c).count, p.parameters);
        EXPECT_EQ(c.max_T, p.max_T);
    }
}

// A field at a time, each named, with what was found and what would do.
TEST(published, what_changes_the_mathematics_is_refused_by_name) {
    struct Change {
        const char *model, *field, *value, *named;
    };
    const char *gpt2 = "openai-community/gpt2", *llama = "meta-llama/Llama-3.2-1B",
               *qwen2 = "Qwen/Qwen2.5-0.5B", *qwen3 = "Qwen/Qwen3-0.6B";
    for (const Change& change :
         {Change{gpt2, "scale_attn_by_inverse_layer_idx", "true", "expected false"},
          {gpt2, "scale_attn_weights", "false", "expected true"},
          {gpt2, "scale_attn_weights", "null", "found null"},
          {gpt2, "add_cross_attention", "true", "expected false"},
          {gpt2, "pruned_heads", R"({"0": [1]})", "pruned_heads"},
          {gpt2, "n_special", "10", "expected 0"},
          {gpt2, "activation_function", R"("gelu")", "expected gelu_new"},
          {llama, "attention_bias", "true", "expected false"},
          {llama, "mlp_bias", "true", "expected false"},
          {llama, "partial_rotary_factor", "0.5", "expected 1.0"},
          {llama, "quantization_config", R"({"bits": 4})", "quantization_config"},
          {llama, "rope_scaling", R"({"type": "yarn", "factor": 4.0, "beta_fast": 32})", "yarn"},
          {llama, "rope_scaling", R"({"type": "linear", "factor": 2.0})", "linear"},
          {qwen2, "use_sliding_window", "true", "expected false"},
          {qwen2, "use_mrope", "true", "expected false"},
          {qwen3, "attention_bias", "true", "expected false"},
          {qwen3, "layer_types", R"(["full_attention", "sliding_attention"])", "layer_types"}}) {
        nlohmann::json json = nlohmann::json::parse(published(change.model).json);
        json[change.field] = nlohmann::json::parse(change.value);
        const std::string error = error_of([&] { model_config_from_json(json, "x.json"); });
        EXPECT_NE(error.find("x.json"), std::string::npos) << error;
        EXPECT_NE(error.find(change.field), std::string::npos) << error;
        EXPECT_NE(error.find(change.named), std::string::npos) << change.field << ": " << error;
    }
}

TEST(published, unknown_fields_are_named_with_a_hint_only_where_one_is_near) {
    nlohmann::json json = nlohmann::json::parse(published("Qwen/Qwen3-0.6B").json);
    const auto with = [&](const char* key) {
        nlohmann::json bad = json;
        bad[key] = 1;
        return error_of([&] { model_config_from_json(bad, "x.json"); });
    };
    EXPECT_EQ(with("residual_multiplier"),
              "x.json: unknown field in the model config; found 'residual_multiplier'");
    EXPECT_NE(with("num_hiden_layers").find("did you mean 'num_hidden_layers'?"),
              std::string::npos);
    EXPECT_NE(with("bell\a").find("'bell\\x07'"), std::string::npos);  // a terminal would obey
    // Another kind's field is not this one's.
    EXPECT_NE(with("scale_attn_weights").find("unknown field"), std::string::npos);
}
