// llmc/model/tiny_models.h: one small model of each kind, for tests.
#pragma once
#include <ostream>
#include <vector>

#include "llmc/model/config.h"

// All sizes odd or prime; padded vocabulary; T shorter than the model's maximum.
inline ModelConfig tiny_config(bool tied) {
    ModelConfig c;
    c.name = tied ? "gpt2 tied" : "gpt2 untied";
    c.L = 2, c.H = c.KV = 3, c.C = 15, c.F = 23, c.V = 37, c.Vp = 128, c.max_T = 11, c.tied = tied;
    return c;
}

// LLaMA's choices: three query heads share a key head, heads wider than C / H.
inline ModelConfig tiny_llama(bool tied) {
    ModelConfig c = tiny_config(tied);
    c.norm = Norm::Rms, c.mlp = Mlp::SwiGlu, c.positions = Positions::Rotary;
    c.biases = c.qkv_bias = false;
    c.name = tied ? "llama tied" : "llama untied";
    c.KV = 1, c.head_size = 6, c.rope_theta = 100;
    return c;
}
// And Qwen2's: a bias on q, k and v alone.
inline ModelConfig tiny_qwen2() {
    ModelConfig c = tiny_llama(true);
    c.name = "qwen2";
    c.qkv_bias = true, c.rope_pairs = RopePairs::Interleaved;
    return c;
}
// And Qwen3's: a norm of each query and key head.
inline ModelConfig tiny_qwen3() {
    ModelConfig c = tiny_llama(false);
    c.name = "qwen3";
    c.qk_norm = true, c.eps = 1e-6f;
    return c;
}

inline std::vector<ModelConfig> tiny_models() {
    return {tiny_config(true), tiny_config(false), tiny_llama(true),
            tiny_llama(false), tiny_qwen2(),       tiny_qwen3()};
}
inline void PrintTo(const ModelConfig& c, std::ostream* out) {
    *out << c.name;
}
