#include "llmc/model/parameters.h"

#include <algorithm>
#include <cmath>

#include "llmc/core/check.h"
#include "llmc/core/rng.h"
#include "llmc/core/round.h"

static void tensor_add(ParamBlock& block, int slot, const std::string& name,
                       std::vector<int64_t> shape, float mean, float std, int64_t padded_size = 0) {
    ParamTensor t{name, std::move(shape), 0, block.size, false, mean, std, slot};
    t.size = padded_size ? padded_size : t.count();
    t.decay = t.shape.size() >= 2;
    block.size += round_up(t.size, kTensorAlign);
    block.tensors.push_back(std::move(t));
}

// What Hugging Face calls the parts of a model; q, k, v and gate, up are one matrix here, as in its
// Phi-3.
struct Names {
    const char *wte, *wpe, *layers, *norm1, *qkv, *proj, *norm2, *fc, *fcproj, *normf;
};
static constexpr Names kGpt2{"transformer.wte", "transformer.wpe", "transformer.h.", "ln_1",
                             "attn.c_attn",     "attn.c_proj",     "ln_2",           "mlp.c_fc",
                             "mlp.c_proj",      "transformer.ln_f"};
static constexpr Names kLlama{"model.embed_tokens",
                              nullptr,
                              "model.layers.",
                              "input_layernorm",
                              "self_attn.qkv_proj",
                              "self_attn.o_proj",
                              "post_attention_layernorm",
                              "mlp.gate_up_proj",
                              "mlp.down_proj",
                              "model.norm"};

static ParamBlock layer_block(const ModelConfig& c, const Names& names, int l) {
    const float std = 0.02f, residual_std = 0.02f / std::sqrt(2.f * float(c.L));
    ParamBlock b{"layer " + std::to_string(l), {}, 0, 0};
    const auto add = [&](int slot, const char* part, std::vector<int64_t> shape, float mean,
                         float std, bool bias) {
        const std::string name = names.layers + std::to_string(l) + "." + part;
        const int64_t rows = shape[0];
        tensor_add(b, slot, name + ".weight", std::move(shape), mean, std);
        if (bias) tensor_add(b, slot + 1, name + ".bias", {rows}, 0, 0);
    };
    const bool shift = c.norm == Norm::Layer;
    add(0, names.norm1, {c.C}, 1, 0, shift);
    add(2, names.qkv, {c.QKV(), c.C}, 0, std, c.qkv_bias);
    if (c.qk_norm) {
        add(12, "self_attn.q_norm", {c.HS()}, 1, 0, false);
        add(13, "self_attn.k_norm", {c.HS()}, 1, 0, false);
    }
    add(4, names.proj, {c.C, c.A()}, 0, residual_std, c.biases);
    add(6, names.norm2, {c.C}, 1, 0, shift);
    add(8, names.fc, {c.FC(), c.C}, 0, std, c.biases);
    add(10, names.fcproj, {c.C, c.F}, 0, residual_std, c.biases);
    return b;
}

ParamLayout param_layout(const ModelConfig& c) {
    const int64_t V = c.V, C = c.C;
    const bool learned = c.positions == Positions::Learned;
    const Names& names = learned ? kGpt2 : kLlama;
    ParamLayout layout;

    ParamBlock embedding{"embedding", {}, 0, 0};
    tensor_add(embedding, 0, str(names.wte, ".weight"), {V, C}, 0, 0.02f, c.Vp * C);
    if (learned) tensor_add(embedding, 1, str(names.wpe, ".weight"), {c.max_T, C}, 0, 0.02f);
    layout.blocks.push_back(std::move(embedding));
    for (int l = 0; l < c.L; l++) layout.blocks.push_back(layer_block(c, names, l));
    ParamBlock head{"head", {}, 0, 0};
    tensor_add(head, 0, str(names.normf, ".weight"), {C}, 1, 0);
    if (c.norm == Norm::Layer) tensor_add(head, 1, str(names.normf, ".bias"), {C}, 0, 0);
    if (!c.tied) tensor_add(head, 2, "lm_head.weight", {V, C}, 0, 0.02f, c.Vp * C);
    layout.blocks.push_back(std::move(head));

    for (ParamBlock& block : layout.blocks) {
        block.offset = layout.size;
        layout.size += block.size;
        for (const ParamTensor& t : block.tensors) layout.count += t.count();
    }
    return layout;
}

void param_init(float* x, const ParamTensor& tensor, int64_t first, int64_t n, uint64_t seed) {
    const int64_t real = std::clamp<int64_t>(tensor.count() - first, 0, n);
    if (tensor.init_std > 0)
        random_normal(x, size_t(real), uint64_t(first), tensor.init_mean, tensor.init_std, seed,
                      name_hash(tensor.name));
    else
        std::fill(x, x + real, tensor.init_mean);
    std::fill(x + real, x + n, 0.f);
}
