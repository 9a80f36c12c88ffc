#include "llmc/model/parameters.h"

#include <algorithm>
#include <cmath>

#include "llmc/core/rng.h"

static int64_t round_up(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

static void tensor_add(ParamBlock& block, const std::string& name, std::vector<int64_t> shape,
                       float mean, float std, int64_t padded_size = 0) {
    ParamTensor t{name, std::move(shape), 0, block.size, false, mean, std};
    t.size = padded_size ? padded_size : t.count();
    t.decay = t.shape.size() >= 2;
    block.size += round_up(t.size, kTensorAlign);
    block.tensors.push_back(std::move(t));
}

static ParamBlock layer_block(const ModelConfig& c, int l) {
    const float std = 0.02f, residual_std = 0.02f / std::sqrt(2.f * float(c.L));
    const int64_t C = c.C, F = c.F, QKV = c.QKV();
    const std::string h = "transformer.h." + std::to_string(l) + ".";
    ParamBlock b{"layer " + std::to_string(l), {}, 0, 0};
    tensor_add(b, h + "ln_1.weight", {C}, 1, 0);
    tensor_add(b, h + "ln_1.bias", {C}, 0, 0);
    tensor_add(b, h + "attn.c_attn.weight", {QKV, C}, 0, std);
    tensor_add(b, h + "attn.c_attn.bias", {QKV}, 0, 0);
    tensor_add(b, h + "attn.c_proj.weight", {C, C}, 0, residual_std);
    tensor_add(b, h + "attn.c_proj.bias", {C}, 0, 0);
    tensor_add(b, h + "ln_2.weight", {C}, 1, 0);
    tensor_add(b, h + "ln_2.bias", {C}, 0, 0);
    tensor_add(b, h + "mlp.c_fc.weight", {F, C}, 0, std);
    tensor_add(b, h + "mlp.c_fc.bias", {F}, 0, 0);
    tensor_add(b, h + "mlp.c_proj.weight", {C, F}, 0, residual_std);
    tensor_add(b, h + "mlp.c_proj.bias", {C}, 0, 0);
    return b;
}

ParamLayout param_layout(const ModelConfig& c) {
    const int64_t V = c.V, C = c.C;
    ParamLayout layout;

    ParamBlock embedding{"embedding", {}, 0, 0};
    tensor_add(embedding, "transformer.wte.weight", {V, C}, 0, 0.02f, c.Vp * C);
    tensor_add(embedding, "transformer.wpe.weight", {c.max_T, C}, 0, 0.02f);
    layout.blocks.push_back(std::move(embedding));
    for (int l = 0; l < c.L; l++) layout.blocks.push_back(layer_block(c, l));
    ParamBlock head{"head", {}, 0, 0};
    tensor_add(head, "transformer.ln_f.weight", {C}, 1, 0);
    tensor_add(head, "transformer.ln_f.bias", {C}, 0, 0);
    if (!c.tied) tensor_add(head, "lm_head.weight", {V, C}, 0, 0.02f, c.Vp * C);
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
