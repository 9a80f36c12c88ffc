// llmc/model/config.h: what a model is: its sizes, by preset or by a config file.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "llmc/core/round.h"
#include "llmc/ops/rope.h"

enum class Norm { Layer, Rms };
enum class Mlp { Gelu, SwiGlu };
enum class Positions { Learned, Rotary };

// The defaults are GPT-2's choices; LLaMA's: Rms, SwiGlu, Rotary, no biases. Qwen's are LLaMA's,
// with qkv_bias (2, 2.5) or qk_norm (3).
struct ModelConfig {
    std::string name;   // the preset or file it came from
    int L = 0;          // layers
    int H = 0, KV = 0;  // query heads, key/value heads
    int C = 0, F = 0;   // width of the residual stream, width of the MLP
    int V = 0, Vp = 0;  // vocabulary, and padded to a multiple of kVocabPadding
    int max_T = 0;      // longest sequence (rows of wpe)
    bool tied = true;   // the head uses the token embedding
    float eps = 1e-5f;  // of the norms
    int head_size = 0;  // 0: C / H

    Norm norm = Norm::Layer;
    Mlp mlp = Mlp::Gelu;
    Positions positions = Positions::Learned;
    bool biases = true;    // of the linear layers and layer norms
    bool qkv_bias = true;  // of the first linear layer of attention
    bool qk_norm = false;  // an RMS norm of each query and key head
    RopePairs rope_pairs = RopePairs::Half;
    double rope_theta = 10000;
    RopeScaling rope_scaling;

    int HS() const { return head_size ? head_size : C / H; }
    int A() const { return H * HS(); }                         // width of attention's output
    int QKV() const { return (H + 2 * KV) * HS(); }            // of a packed q, k, v row
    int FC() const { return mlp == Mlp::SwiGlu ? 2 * F : F; }  // of the MLP's first layer
};

// Vocabulary rows are padded so that GEMMs see whole tiles; rows V..Vp-1 are zero and stay zero.
constexpr int kVocabPadding = 128;
inline int vocab_padded(int V) {
    return round_up(V, kVocabPadding);
}

// The config of `spec`: a preset (gpt2:124M, gpt2:d6, gpt3:125M, ...) or the path of a config.json
// with Hugging Face's field names. vocab_size > 0 replaces the vocabulary.
// Errors (Usage): unknown preset (with the nearest name), unknown, missing or impossible fields.
ModelConfig model_config(const std::string& spec, int vocab_size = 0);

// All preset names, for the nearest-name hint.
std::vector<std::string> model_presets();

// To and from JSON with Hugging Face's field names; config.json and the checkpoint's manifest use
// it. `where` names the file in error messages.
nlohmann::json model_config_to_json(const ModelConfig& cfg);
ModelConfig model_config_from_json(const nlohmann::json& json, const std::string& where);

// Throws Error(Usage) unless 1 <= seq_len <= cfg.max_T.
void check_seq_len(const ModelConfig& cfg, int seq_len);
