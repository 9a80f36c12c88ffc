#include "llmc/model/config.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "llmc/core/check.h"
#include "llmc/core/nearest.h"

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
constexpr int kGpt2Vocab = 50257;
constexpr int kMaxSize = 1 << 24;


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

// Fields that change the maths must be known to us; a few that do not are let pass.
void check_fields(const nlohmann::json& json, const std::string& where) {
    static const std::set<std::string> harmless = {"architectures",
                                                   "attn_pdrop",
                                                   "bos_token_id",
                                                   "embd_pdrop",
                                                   "eos_token_id",
                                                   "initializer_range",
                                                   "resid_pdrop",
                                                   "summary_activation",
                                                   "summary_first_dropout",
                                                   "summary_proj_to_labels",
                                                   "summary_type",
                                                   "summary_use_proj",
                                                   "task_specific_params",
                                                   "torch_dtype",
                                                   "transformers_version",
                                                   "use_cache",
                                                   "n_ctx",
                                                   "gradient_checkpointing",
                                                   "_name_or_path",
                                                   "pad_token_id"};
    static const std::vector<std::string> used = {"model_type",
                                                  "activation_function",
                                                  "n_layer",
                                                  "n_head",
                                                  "n_embd",
                                                  "n_inner",
                                                  "vocab_size",
                                                  "n_positions",
                                                  "layer_norm_epsilon",
                                                  "tie_word_embeddings"};
    for (const auto& [key, value] : json.items())
        CHECK(harmless.count(key) || std::count(used.begin(), used.end(), key), Exit::Usage,
              where + ": unknown field in the model config", "'" + key + "'", "",
              "did you mean '" + nearest_name(key, used) + "'?");
}
}  // namespace

std::vector<std::string> model_presets() {
    std::vector<std::string> names;
    for (const Preset& p : kPresets) names.push_back(p.name);
    for (int d : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 24, 36, 48})
        names.push_back(str("gpt2:d", d));
    return names;
}

ModelConfig model_config(const std::string& spec, int vocab_size) {
    ModelConfig c;
    Preset p{};
    if (preset_find(spec, p)) {
        c.L = p.L, c.H = c.KV = p.H, c.C = p.C, c.F = 4 * p.C, c.max_T = p.max_T, c.V = kGpt2Vocab;
    } else {
        CHECK(spec.ends_with(".json"), Exit::Usage, "unknown model", "'" + spec + "'",
              "a preset, a config.json or a checkpoint",
              "did you mean '" + nearest_name(spec, model_presets()) + "'?");
        std::ifstream in(spec);
        CHECK(in.good(), Exit::Usage, "cannot read the model config", spec, "a readable JSON file");
        const nlohmann::json json = nlohmann::json::parse(in, nullptr, false);
        CHECK(!json.is_discarded(), Exit::Usage, spec + " is not valid JSON");
        c = model_config_from_json(json, spec);
    }
    if (vocab_size > 0) c.V = vocab_size;
    c.Vp = vocab_padded(c.V);
    c.name = spec;
    return c;
}

nlohmann::json model_config_to_json(const ModelConfig& c) {
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
    check_fields(json, where);
    const FieldReader read{json, where};
    const std::string type = read.text("model_type", "gpt2");
    const std::string activation = read.text("activation_function", "gelu_new");
    CHECK(type == "gpt2", Exit::Usage, where + ": unknown model_type", type, "gpt2");
    CHECK(activation == "gelu_new" || activation == "gelu_pytorch_tanh", Exit::Usage,
          where + ": unsupported activation_function", activation, "gelu_new");

    ModelConfig c;
    c.name = where;
    c.L = read.size("n_layer", 0);
    c.H = c.KV = read.size("n_head", 0);
    c.C = read.size("n_embd", 0);
    c.F = read.size("n_inner", 4 * int64_t(c.C));
    c.V = read.size("vocab_size", kGpt2Vocab);
    c.Vp = vocab_padded(c.V);
    c.max_T = read.size("n_positions", 1024);
    c.tied = read.flag("tie_word_embeddings", true);
    c.eps = read.positive("layer_norm_epsilon", 1e-5f);
    CHECK(c.C % c.H == 0, Exit::Usage, where + ": the width must be a multiple of the heads",
          str("n_embd ", c.C, ", n_head ", c.H), "n_embd % n_head == 0",
          str("n_embd ", (c.C / c.H + 1) * c.H));
    return c;
}

void check_seq_len(const ModelConfig& cfg, int seq_len) {
    CHECK(seq_len >= 1 && seq_len <= cfg.max_T, Exit::Usage,
          "--seq-len does not fit the model's positions", str(seq_len),
          str("1 to ", cfg.max_T, " for ", cfg.name));
}
