#include "llmc/model/config.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "llmc/core/check.h"
#include "llmc/core/nearest.h"

namespace fs = std::filesystem;

namespace {
struct Preset {
    const char* name;
    int L, H, C, max_T;
};
// GPT-2: Radford et al. 2019, table 2, sizes as released. GPT-3: Brown et al. 2020,
// arXiv:2005.14165, table 2.1; where the table's head count does not divide the width, its head
// size decides.
constexpr Preset kPresets[] = {
    {"gpt2:124M", 12, 12, 768, 1024},  {"gpt2:350M", 24, 16, 1024, 1024},
    {"gpt2:774M", 36, 20, 1280, 1024}, {"gpt2:1558M", 48, 25, 1600, 1024},
    {"gpt3:125M", 12, 12, 768, 2048},  {"gpt3:350M", 24, 16, 1024, 2048},
    {"gpt3:760M", 24, 16, 1536, 2048}, {"gpt3:1.3B", 24, 16, 2048, 2048},
    {"gpt3:2.7B", 32, 32, 2560, 2048}, {"gpt3:6.7B", 32, 32, 4096, 2048},
};
// LLaMA's: sizes from the config.json files that their authors published beside the weights
// (TinyLlama: Zhang et al. 2024, arXiv:2401.02385; LLaMA 2: Touvron et al. 2023, arXiv:2307.09288;
// LLaMA 3: Grattafiori et al. 2024, arXiv:2407.21783; Qwen 2.5: Yang et al. 2024, arXiv:2412.15115;
// Qwen 3: Yang et al. 2025, arXiv:2505.09388). stretch: RopeScaling's factor.
struct LlamaPreset {
    const char* name;
    int L, H, KV, C, F, V, max_T;
    bool tied;
    double theta, stretch;
    float eps = 1e-5f;
    int head_size = 0;
    bool qkv_bias = false, qk_norm = false;
};
constexpr LlamaPreset kLlamaPresets[] = {
    {"llama:tiny", 5, 8, 4, 64, 172, 512, 512, true, 1e4, 1},
    {"llama:tinyllama-1.1B", 22, 32, 4, 2048, 5632, 32000, 2048, false, 1e4, 1},
    {"llama:2-7B", 32, 32, 32, 4096, 11008, 32000, 4096, false, 1e4, 1},
    {"llama:2-13B", 40, 40, 40, 5120, 13824, 32000, 4096, false, 1e4, 1},
    {"llama:3.2-1B", 16, 32, 8, 2048, 8192, 128256, 131072, true, 5e5, 32},
    {"llama:3.2-3B", 28, 24, 8, 3072, 8192, 128256, 131072, true, 5e5, 32},
    {"llama:3.1-8B", 32, 32, 8, 4096, 14336, 128256, 131072, false, 5e5, 8},
    {"llama:3.1-70B", 80, 64, 8, 8192, 28672, 128256, 131072, false, 5e5, 8},
    {"qwen2.5:0.5B", 24, 14, 2, 896, 4864, 151936, 32768, true, 1e6, 1, 1e-6f, 0, true},
    {"qwen2.5:7B", 28, 28, 4, 3584, 18944, 152064, 131072, false, 1e6, 1, 1e-6f, 0, true},
    {"qwen3:0.6B", 28, 16, 8, 1024, 3072, 151936, 40960, true, 1e6, 1, 1e-6f, 128, false, true},
    {"qwen3:8B", 36, 32, 8, 4096, 12288, 151936, 40960, false, 1e6, 1, 1e-6f, 128, false, true},
};
constexpr int kGpt2Vocab = 50257;
constexpr int kMaxSize = 1 << 24;

// What makes a config a LLaMA's, sizes apart.
void set_llama(ModelConfig& c) {
    c.norm = Norm::Rms, c.mlp = Mlp::SwiGlu, c.positions = Positions::Rotary;
    c.biases = c.qkv_bias = false;
}

bool llama_preset_find(const std::string& spec, ModelConfig& c) {
    for (const LlamaPreset& p : kLlamaPresets) {
        if (spec != p.name) continue;
        set_llama(c);
        c.L = p.L, c.H = p.H, c.KV = p.KV, c.C = p.C, c.F = p.F, c.V = p.V, c.max_T = p.max_T;
        c.tied = p.tied, c.rope_theta = p.theta, c.rope_scaling.factor = p.stretch;
        c.eps = p.eps, c.head_size = p.head_size, c.qkv_bias = p.qkv_bias, c.qk_norm = p.qk_norm;
        return true;
    }
    return false;
}

// The preset named `spec`. gpt2:dN has depth N and width 64 N up to d12; the deeper ones have the
// shapes of the GPT-2 family.
bool preset_find(const std::string& spec, Preset& found) {
    for (const Preset& p : kPresets)
        if (spec == p.name) return found = p, true;
    for (int depth = 1; depth <= 48; depth++) {
        if (spec != str("gpt2:d", depth)) continue;
        if (depth <= 12) return found = {"", depth, depth, 64 * depth, 1024}, true;
        for (const Preset& p : kPresets)
            if (p.L == depth && p.max_T == 1024) return found = p, true;
    }
    return false;
}

// Reads fields of one JSON object; errors name the file and the field.
struct FieldReader {
    const nlohmann::json& json;
    const std::string& where;

    // A missing or null field takes the fallback; without a fallback (0) it is an error.
    int size(const char* key, int64_t fallback) const {
        if (!json.contains(key) || json[key].is_null()) {
            CHECK(fallback > 0, Exit::Usage, where + ": a field of the model config is missing", "",
                  str("'", key, "'"));
            return int(fallback);
        }
        CHECK(json[key].is_number_integer(), Exit::Usage,
              str(where, ": '", key, "' must be a whole number"), json[key].dump());
        const int64_t n = json[key].get<int64_t>();
        CHECK(n >= 1 && n <= kMaxSize, Exit::Usage, str(where, ": '", key, "' is out of range"),
              str(n), str("1 to ", kMaxSize));
        return int(n);
    }
    std::string text(const char* key, const char* fallback) const {
        if (!json.contains(key)) return fallback;
        CHECK(json[key].is_string(), Exit::Usage, str(where, ": '", key, "' must be a string"),
              json[key].dump());
        return json[key].get<std::string>();
    }
    bool flag(const char* key, bool fallback) const {
        if (!json.contains(key)) return fallback;
        CHECK(json[key].is_boolean(), Exit::Usage,
              str(where, ": '", key, "' must be true or false"), json[key].dump());
        return json[key].get<bool>();
    }
    float positive(const char* key, float fallback) const {
        if (!json.contains(key)) return fallback;
        CHECK(json[key].is_number() && json[key].get<double>() > 0, Exit::Usage,
              str(where, ": '", key, "' must be a positive number"), json[key].dump());
        return json[key].get<float>();
    }
};

// The kinds of config files: GPT-2's, LLaMA's, Qwen's.
enum : unsigned { Gpt2 = 1, Llama = 2, Qwen = 4, All = Gpt2 | Llama | Qwen };

// What such a file may hold besides the sizes. A field without values is harmless: it says nothing
// about the function from tokens to logits, or, as dropout, nothing that we do. With one of these
// values the others change nothing; another value would change the mathematics and is refused.
// Fields and meanings: configuration_{utils,gpt2,llama,qwen2,qwen3}.py of Hugging Face's
// transformers 4.57, and the config.json files that config_published_test.cpp lists.
struct Aside {
    const char* field;
    unsigned kinds;
    std::vector<nlohmann::json> neutral = {};
};
// clang-format off
const std::vector<Aside>& asides() {
    static const std::vector<Aside> table = {
        // who wrote it, and how
        {"architectures", All}, {"_name_or_path", All}, {"name_or_path", All},
        {"transformers_version", All}, {"torch_dtype", All}, {"dtype", All},
        {"tokenizer_class", All}, {"transformers.js_config", All}, {"unsloth_fixed", All},
        {"unsloth_version", All}, {"is_llama_config", Llama},
        // training elsewhere
        {"initializer_range", All}, {"attention_dropout", Llama | Qwen}, {"attn_pdrop", Gpt2},
        {"embd_pdrop", Gpt2}, {"resid_pdrop", Gpt2}, {"gradient_checkpointing", All},
        {"neftune_noise_alpha", All},
        // tokens with a meaning, and how text is generated
        {"bos_token_id", All}, {"eos_token_id", All}, {"pad_token_id", All}, {"sep_token_id", All},
        {"decoder_start_token_id", All}, {"task_specific_params", All}, {"do_sample", All},
        {"max_length", All}, {"temperature", All}, {"top_k", All}, {"top_p", All}, {"prefix", All},
        // what a call returns, and how it gets there
        {"use_cache", All}, {"output_past", Gpt2}, {"output_attentions", All},
        {"output_hidden_states", All}, {"return_dict", All}, {"return_dict_in_generate", All},
        {"torchscript", All}, {"use_bfloat16", All}, {"chunk_size_feed_forward", All},
        {"attn_implementation", All}, {"_attn_implementation", All},
        {"_attn_implementation_autoset", All}, {"pretraining_tp", Llama},
        {"reorder_and_upcast_attn", Gpt2},
        // heads for other tasks
        {"summary_activation", Gpt2}, {"summary_first_dropout", Gpt2},
        {"summary_proj_to_labels", Gpt2}, {"summary_type", Gpt2}, {"summary_use_proj", Gpt2},
        {"num_labels", All}, {"_num_labels", All}, {"id2label", All}, {"label2id", All},
        {"problem_type", All}, {"finetuning_task", All}, {"predict_special_tokens", Gpt2},
        {"is_decoder", All},
        // a second name for the length, and windows that use_sliding_window turns on
        {"n_ctx", Gpt2}, {"max_sequence_length", Llama}, {"sliding_window", Qwen},
        {"max_window_layers", Qwen},
        // what would change the mathematics
        {"n_special", Gpt2, {0}}, {"scale_attn_weights", Gpt2, {true}},
        {"scale_attn_by_inverse_layer_idx", Gpt2, {false}}, {"add_cross_attention", All, {false}},
        {"is_encoder_decoder", All, {false}}, {"pruned_heads", All, {nlohmann::json::object()}},
        {"quantization_config", All, {nullptr}}, {"attention_bias", Llama | Qwen, {false}},
        {"mlp_bias", Llama, {false}}, {"use_sliding_window", Qwen, {false}},
        {"use_mrope", Qwen, {false}}, {"partial_rotary_factor", Llama | Qwen, {1.0}},
    };
    return table;
}
// clang-format on

// Each field is one of the sizes, which are read elsewhere, or an aside.
using Fields = std::vector<std::string>;
void check_fields(const nlohmann::json& json, const Fields& used, unsigned kind,
                  const std::string& where) {
    for (const auto& [key, value] : json.items()) {
        if (std::count(used.begin(), used.end(), key)) continue;
        const auto aside = std::find_if(
            asides().begin(), asides().end(),
            [&, key = key](const Aside& a) { return key == a.field && (a.kinds & kind); });
        CHECK(aside != asides().end(), Exit::Usage, where + ": unknown field in the model config",
              "'" + key + "'", "", did_you_mean(key, used));
        const auto& neutral = aside->neutral;
        CHECK(neutral.empty() || std::count(neutral.begin(), neutral.end(), value), Exit::Usage,
              where + ": unsupported " + key, value.dump().substr(0, 60), neutral[0].dump());
    }
}

// A text field that may say one of these things, or be missing.
void check_text(const FieldReader& read, const char* key, const Fields& allowed) {
    const std::string found = read.text(key, allowed[0].c_str());
    CHECK(std::count(allowed.begin(), allowed.end(), found), Exit::Usage,
          str(read.where, ": unsupported ", key), found, allowed[0]);
}

ModelConfig gpt2_from_json(const nlohmann::json& json, const std::string& where) {
    static const Fields used = {"model_type",
                                "activation_function",
                                "n_layer",
                                "n_head",
                                "n_embd",
                                "n_inner",
                                "vocab_size",
                                "n_positions",
                                "layer_norm_epsilon",
                                "tie_word_embeddings"};
    check_fields(json, used, Gpt2, where);
    const FieldReader read{json, where};
    check_text(read, "activation_function", {"gelu_new", "gelu_pytorch_tanh"});
    ModelConfig c;
    c.L = read.size("n_layer", 0);
    c.H = c.KV = read.size("n_head", 0);
    c.C = read.size("n_embd", 0);
    c.F = read.size("n_inner", 4 * int64_t(c.C));
    c.V = read.size("vocab_size", kGpt2Vocab);
    c.max_T = read.size("n_positions", 1024);
    c.tied = read.flag("tie_word_embeddings", true);
    c.eps = read.positive("layer_norm_epsilon", 1e-5f);
    CHECK(c.C % c.H == 0, Exit::Usage, where + ": the width must be a multiple of the heads",
          str("n_embd ", c.C, ", n_head ", c.H), "n_embd % n_head == 0",
          str("n_embd ", (c.C / c.H + 1) * c.H));
    return c;
}

RopeScaling rope_scaling_from_json(const nlohmann::json& json, const std::string& where) {
    static const Fields used = {"rope_type",        "type",
                                "factor",           "low_freq_factor",
                                "high_freq_factor", "original_max_position_embeddings",
                                "rope_theta"};
    const FieldReader read{json, where};
    const std::string type = read.text("rope_type", read.text("type", "default").c_str());
    CHECK(type == "llama3" || type == "default", Exit::Usage,
          where + ": unsupported kind of rotary scaling", type, "llama3 or default");
    check_fields(json, used, Llama | Qwen, where);
    RopeScaling r;
    if (type == "default") return r;
    r.factor = read.positive("factor", 8);
    r.low_freq_factor = read.positive("low_freq_factor", 1);
    r.high_freq_factor = read.positive("high_freq_factor", 4);
    r.old_context = read.size("original_max_position_embeddings", 8192);
    CHECK(r.high_freq_factor > r.low_freq_factor, Exit::Usage,
          where + ": high_freq_factor must be above low_freq_factor",
          str(r.high_freq_factor, " and ", r.low_freq_factor));
    return r;
}

// Qwen's files say of each layer that it has no window.
void check_no_window(const FieldReader& read) {
    const nlohmann::json& json = read.json;
    if (!json.contains("layer_types") || json["layer_types"].is_null()) return;
    for (const nlohmann::json& type : json["layer_types"])
        CHECK(type == "full_attention", Exit::Usage, read.where + ": unsupported layer_types",
              type.dump(), "full_attention");
}

// The angles: theta and its scaling stand side by side, or together in rope_parameters.
void rope_from_json(ModelConfig& c, const FieldReader& read) {
    const nlohmann::json& json = read.json;
    c.rope_theta = read.positive("rope_theta", 10000);
    // llama2.c's files keep the original order of pairs; Hugging Face's have the halves.
    c.rope_pairs = read.flag("rope_interleaved", false) ? RopePairs::Interleaved : RopePairs::Half;
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
        if (!json.contains(key) || json[key].is_null()) continue;
        const std::string where = str(read.where, ": ", key);
        CHECK(json[key].is_object(), Exit::Usage, where + " must be an object", json[key].dump());
        c.rope_scaling = rope_scaling_from_json(json[key], where);
        c.rope_theta = FieldReader{json[key], where}.positive("rope_theta", float(c.rope_theta));
    }
}

ModelConfig llama_from_json(const nlohmann::json& json, const std::string& where,
                            const std::string& type) {
    Fields used = {"model_type",          "hidden_act",
                   "num_hidden_layers",   "num_attention_heads",
                   "num_key_value_heads", "head_dim",
                   "hidden_size",         "intermediate_size",
                   "vocab_size",          "max_position_embeddings",
                   "rms_norm_eps",        "rope_theta",
                   "rope_scaling",        "rope_interleaved",
                   "rope_parameters",     "tie_word_embeddings"};
    if (type != "llama") used.push_back("layer_types");
    check_fields(json, used, type == "llama" ? Llama : Qwen, where);
    const FieldReader read{json, where};
    check_text(read, "hidden_act", {"silu"});
    check_no_window(read);
    ModelConfig c;
    set_llama(c);
    c.qkv_bias = type == "qwen2", c.qk_norm = type == "qwen3";
    c.L = read.size("num_hidden_layers", 0);
    c.H = read.size("num_attention_heads", 0);
    c.KV = read.size("num_key_value_heads", c.H);
    c.C = read.size("hidden_size", 0);
    c.F = read.size("intermediate_size", 0);
    c.V = read.size("vocab_size", 0);
    c.max_T = read.size("max_position_embeddings", 2048);
    c.tied = read.flag("tie_word_embeddings", false);
    c.eps = read.positive("rms_norm_eps", 1e-6f);
    rope_from_json(c, read);
    constexpr int kQwen3Head = 128;  // where its file does not say
    const bool named = json.contains("head_dim") && !json["head_dim"].is_null();
    const bool own_size = named || type == "qwen3";
    CHECK(own_size || c.C % c.H == 0, Exit::Usage,
          where + ": the width must be a multiple of the heads",
          str("hidden_size ", c.C, ", num_attention_heads ", c.H));
    if (own_size) c.head_size = read.size("head_dim", named ? 0 : kQwen3Head);
    CHECK(c.HS() % 2 == 0, Exit::Usage, where + ": rotary positions turn pairs",
          str("a head size of ", c.HS()), "an even head size");
    CHECK(c.H % c.KV == 0, Exit::Usage,
          where + ": the query heads must be a multiple of the key heads",
          str("num_attention_heads ", c.H, ", num_key_value_heads ", c.KV));
    return c;
}
}  // namespace

std::vector<std::string> model_presets() {
    std::vector<std::string> names;
    for (const Preset& p : kPresets) names.push_back(p.name);
    for (const LlamaPreset& p : kLlamaPresets) names.push_back(p.name);
    for (int d : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 24, 36, 48})
        names.push_back(str("gpt2:d", d));
    return names;
}

constexpr uintmax_t kMaxConfigBytes = 1 << 20;

ModelConfig model_config(const std::string& spec, int vocab_size) {
    ModelConfig c;
    Preset p{};
    if (preset_find(spec, p)) {
        c.L = p.L, c.H = c.KV = p.H, c.C = p.C, c.F = 4 * p.C, c.max_T = p.max_T, c.V = kGpt2Vocab;
    } else if (!llama_preset_find(spec, c)) {
        CHECK(spec.ends_with(".json"), Exit::Usage, "unknown model", "'" + spec + "'",
              "a preset, a config.json or a checkpoint", did_you_mean(spec, model_presets()));
        std::ifstream in;
        std::error_code none;
        if (fs::is_regular_file(spec, none) && fs::file_size(spec, none) <= kMaxConfigBytes)
            in.open(spec);  // of a pipe, it would wait
        CHECK(in.is_open(), Exit::Usage, "cannot read the model config", spec,
              "a readable JSON file of at most 1 MiB");
        const nlohmann::json json = nlohmann::json::parse(in, nullptr, false);
        CHECK(!json.is_discarded(), Exit::Usage, spec + " is not valid JSON");
        c = model_config_from_json(json, spec);
    }
    if (vocab_size > 0) c.V = vocab_size;
    c.Vp = vocab_padded(c.V);
    c.name = spec;
    return c;
}

static nlohmann::json llama_to_json(const ModelConfig& c) {
    const char* type = c.qk_norm ? "qwen3" : c.qkv_bias ? "qwen2" : "llama";
    const char* name = c.qk_norm    ? "Qwen3ForCausalLM"
                       : c.qkv_bias ? "Qwen2ForCausalLM"
                                    : "LlamaForCausalLM";
    nlohmann::json json = {{"model_type", type},
                           {"architectures", {name}},
                           {"hidden_act", "silu"},
                           {"num_hidden_layers", c.L},
                           {"num_attention_heads", c.H},
                           {"num_key_value_heads", c.KV},
                           {"head_dim", c.HS()},
                           {"hidden_size", c.C},
                           {"intermediate_size", c.F},
                           {"vocab_size", c.V},
                           {"max_position_embeddings", c.max_T},
                           {"rms_norm_eps", c.eps},
                           {"rope_theta", c.rope_theta},
                           {"tie_word_embeddings", c.tied}};
    // Qwen 2 has no such field: its biases are not for choice.
    if (!c.qkv_bias) json["attention_bias"] = false;
    if (!c.qkv_bias && !c.qk_norm) json["mlp_bias"] = false;
    if (c.rope_pairs == RopePairs::Interleaved) json["rope_interleaved"] = true;
    if (c.rope_scaling.factor != 1)
        json["rope_scaling"] = {
            {"rope_type", "llama3"},
            {"factor", c.rope_scaling.factor},
            {"low_freq_factor", c.rope_scaling.low_freq_factor},
            {"high_freq_factor", c.rope_scaling.high_freq_factor},
            {"original_max_position_embeddings", int64_t(c.rope_scaling.old_context)}};
    return json;
}

nlohmann::json model_config_to_json(const ModelConfig& c) {
    if (c.positions == Positions::Rotary) return llama_to_json(c);
    return {{"model_type", "gpt2"},
            {"architectures", {"GPT2LMHeadModel"}},
            {"activation_function", "gelu_new"},
            {"n_layer", c.L},
            {"n_head", c.H},
            {"n_embd", c.C},
            {"n_inner", c.F},
            {"vocab_size", c.V},
            {"n_positions", c.max_T},
            {"layer_norm_epsilon", c.eps},
            {"tie_word_embeddings", c.tied}};
}

ModelConfig model_config_from_json(const nlohmann::json& json, const std::string& where) {
    CHECK(json.is_object(), Exit::Usage, where + ": the model config must be a JSON object");
    const std::string type = FieldReader{json, where}.text("model_type", "gpt2");
    CHECK(type == "gpt2" || type == "llama" || type == "qwen2" || type == "qwen3", Exit::Usage,
          where + ": unknown model_type", type, "gpt2, llama, qwen2 or qwen3");
    ModelConfig c =
        type == "gpt2" ? gpt2_from_json(json, where) : llama_from_json(json, where, type);
    c.name = where;
    c.Vp = vocab_padded(c.V);
    return c;
}

void check_seq_len(const ModelConfig& cfg, int seq_len) {
    CHECK(seq_len >= 1 && seq_len <= cfg.max_T, Exit::Usage,
          "--seq-len does not fit the model's positions", str(seq_len),
          str("1 to ", cfg.max_T, " for ", cfg.name));
}
