#include "llmc/model/decode.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "llmc/core/check.h"
#include "llmc/core/round.h"
#include "llmc/model/norm.h"
#include "llmc/ops/attention.h"
#include "llmc/ops/matmul.h"
#include "llmc/ops/qknorm.h"
#include "llmc/ops/swiglu.h"
#include "llmc/parallel/liveness.h"

// ---- the CPU's
Decoder<float, CpuStream>::Decoder(const ModelConfig& cfg, int capacity, int batch,
                                   Memory<CpuStream>& memory)
    : cfg_(cfg), capacity_(std::min(capacity, cfg.max_T)), batch_(std::min(batch, capacity_)) {
    const int64_t n = batch_, C = cfg.C;
    auto floats = [&](const char* name, int64_t count) {
        return memory.get<float>("generation", name, count);
    };

    res_ = floats("residual", n * C), norm_ = floats("norm", n * C);
    qkv_ = floats("q, k, v", n * cfg.QKV()), att_ = floats("attention", n * cfg.A());
    if (cfg.qk_norm) {
        qk_ = floats("q, k before their norm", n * (cfg.H + cfg.KV) * cfg.HS());
        rstdqk_ = floats("deviations of q and k", n * (cfg.H + cfg.KV));
    }
    if (cfg.mlp == Mlp::SwiGlu) pre_ = floats("MLP before its activation", n * cfg.FC());
    act_ = floats("MLP", n * cfg.F), branch_ = floats("branch", n * C);
    mean_ = floats("mean", n), rstd_ = floats("deviation", n);
    const int64_t cache = int64_t(cfg.L) * capacity_ * cfg.KV * cfg.HS();
    keys_ = floats("key cache", cache), values_ = floats("value cache", cache);
    logits_ = floats("logits", cfg.Vp);
    if (cfg.positions == Positions::Rotary) {
        rope_ = floats("rotary table", int64_t(capacity_) * cfg.HS());
        if (!memory.measuring())
            rope_table(rope_, 0, capacity_, cfg.HS(), cfg.rope_theta, cfg.rope_scaling);
    }
    const CpuStream s;
    const size_t scratch = std::max({matmul_workspace_bytes(batch_, cfg.C, cfg.QKV(), s),
                                     matmul_workspace_bytes(batch_, cfg.A(), cfg.C, s),
                                     matmul_workspace_bytes(batch_, cfg.C, cfg.FC(), s),
                                     matmul_workspace_bytes(batch_, cfg.F, cfg.C, s),
                                     matmul_workspace_bytes(1, cfg.C, cfg.Vp, s)});
    ws_ = memory.workspace("generation", scratch);
}

const float* Decoder<float, CpuStream>::feed(Shards<float, CpuStream>& shards, const int* tokens,
                                             int n) {
    assert(n >= 1 && used_ + n <= capacity_);
    for (int done = 0; done < n; done += batch_)
        feed_batch(shards, tokens + done, std::min(batch_, n - done));

    // Logits of the last token: its residual stream is the last row of the last batch.
    const CpuStream s;
    const ParamLayout& layout = shards.layout();
    const int last = (n - 1) % batch_, e = layout.embedding(), h = layout.head(), C = cfg_.C;
    float* embedding = shards.params_acquire(e);
    const auto head = head_params(layout.blocks[h], shards.params_acquire(h));
    const float* lmw = head.lmw ? head.lmw : embedding_params(layout.blocks[e], embedding).wte;
    norm_forward(cfg_, norm_, mean_, rstd_, res_ + int64_t(last) * C, head.lnfw, head.lnfb, 1, s);
    matmul_forward(logits_, norm_, lmw, nullptr, 1, C, cfg_.Vp, ws_, s);
    shards.params_release(h);
    shards.params_release(e);
    return logits_;
}

// All layers for n <= batch tokens; leaves their residual stream in res_.
void Decoder<float, CpuStream>::feed_batch(Shards<float, CpuStream>& shards, const int* tokens,
                                           int n) {
    const CpuStream s;
    const ModelConfig& c = cfg_;
    const int C = c.C, A = c.A(), HS = c.HS(), QKV = c.QKV(), kv = c.KV * HS;
    const ParamLayout& layout = shards.layout();

    // Embedding: positions go on where the cache ends.
    const int first = layout.embedding();
    const auto e = embedding_params(layout.blocks[first], shards.params_acquire(first));
    for (int i = 0; i < n; i++)
        for (int k = 0; k < C; k++) {
            const float token = e.wte[int64_t(tokens[i]) * C + k];
            res_[int64_t(i) * C + k] = e.wpe ? token + e.wpe[int64_t(used_ + i) * C + k] : token;
        }
    shards.params_release(first);

    for (int l = 0; l < c.L; l++) {
        const int b = layout.layer(l);
        const auto p = layer_params(layout.blocks[b], shards.params_acquire(b));
        float* keys = keys_ + int64_t(l) * capacity_ * kv;
        float* values = values_ + int64_t(l) * capacity_ * kv;
        norm_forward(c, norm_, mean_, rstd_, res_, p.ln1w, p.ln1b, n, s);
        matmul_forward(qkv_, norm_, p.qkvw, p.qkvb, n, C, QKV, ws_, s);
        if (c.qk_norm)
            qknorm_forward(qkv_, qk_, rstdqk_, p.qnormw, p.knormw, n, c.H, c.KV, HS, c.eps, s);
        if (rope_) rope(qkv_, rope_ + int64_t(used_) * HS, 1, n, c.H, c.KV, HS, c.rope_pairs, 1, s);
        for (int i = 0; i < n; i++) {
            const float* q = qkv_ + int64_t(i) * QKV;
            std::memcpy(keys + int64_t(used_ + i) * kv, q + A, size_t(kv) * sizeof(float));
            std::memcpy(values + int64_t(used_ + i) * kv, q + A + kv, size_t(kv) * sizeof(float));
        }
        for (int i = 0; i < n; i++)
            attention_decode(att_ + int64_t(i) * A, qkv_ + int64_t(i) * QKV, keys, values,
                             used_ + i, c.H, c.KV, HS, s);
        matmul_forward(branch_, att_, p.projw, p.projb, n, A, C, ws_, s);
        residual_norm_forward(c, res_, norm_, mean_, rstd_, res_, branch_, p.ln2w, p.ln2b, n, s);
        if (c.mlp == Mlp::Gelu) {
            matmul_gelu_forward(act_, nullptr, norm_, p.fcw, p.fcb, n, C, c.F, ws_, s);
        } else {
            matmul_forward(pre_, norm_, p.fcw, p.fcb, n, C, c.FC(), ws_, s);
            swiglu_forward(act_, pre_, n, c.F, s);
        }
        matmul_forward(branch_, act_, p.fcprojw, p.fcprojb, n, c.F, C, ws_, s);
        for (int64_t i = 0; i < int64_t(n) * C; i++) res_[i] += branch_[i];
        shards.params_release(b);
        liveness_mark();
    }
    used_ += n;
}

// ---- CUDA's: sequences of a multiple of so many tokens, for aligned kernels
constexpr int kStride = 16;

static int padded(const ModelConfig& c, int n) {
    return std::min(round_up(n, kStride), c.max_T);
}

template <class Elem>
Decoder<Elem, CudaStream>::Decoder(const ModelConfig& cfg, int capacity, int,
                                   Memory<CudaStream>& memory)
    : capacity_(std::min(capacity, cfg.max_T)),
      gpt_(gpt_create<Elem>(cfg, 1, padded(cfg, capacity_), Recompute::Block, true, memory)),
      logits_(size_t(cfg.V)) {}

template <class Elem>
const float* Decoder<Elem, CudaStream>::feed(Shards<Elem, CudaStream>& shards, const int* tokens,
                                             int n) {
    assert(n >= 1 && used() + n <= capacity_);
    text_.insert(text_.end(), tokens, tokens + n);
    // Attention looks back only, so what fills the sequence up changes nothing before it.
    std::vector<int> filled = text_;
    gpt_.acts.T = padded(gpt_.cfg, used());
    filled.resize(size_t(gpt_.acts.T), 0);
    gpt_forward(gpt_, shards, filled.data());
    gpt_logits(gpt_, shards, used() - 1, logits_.data());
    return logits_.data();
}

FOR_CUDA(template class Decoder<float, CudaStream>; template class Decoder<bf16, CudaStream>;)
