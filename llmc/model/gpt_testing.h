// llmc/model/gpt_testing.h: what tests of whole models on CUDA share: small models of each kind, a
// model on either backend, and how far the two may be apart.
#pragma once
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "llmc/core/rng.h"
#include "llmc/model/gpt.h"
#include "llmc/model/parameters.h"
#include "llmc/ops/classifier.h"

// Tensor cores want heads of 64; everything else of the second one is odd or prime.
inline ModelConfig small_config(bool odd) {
    ModelConfig c;
    c.name = odd ? "odd" : "small";
    c.L = 2, c.tied = !odd;
    if (odd)
        c.H = c.KV = 3, c.C = 15, c.F = 23, c.V = 37, c.max_T = 41;
    else
        c.H = c.KV = 2, c.C = 128, c.F = 512, c.V = 257, c.max_T = 96;
    c.Vp = vocab_padded(c.V);
    return c;
}

// LLaMA's kind: one key head for all query heads.
inline ModelConfig small_llama(bool odd) {
    ModelConfig c = small_config(odd);
    c.name += " llama";
    c.norm = Norm::Rms, c.mlp = Mlp::SwiGlu, c.positions = Positions::Rotary;
    c.biases = c.qkv_bias = false;
    c.KV = 1, c.head_size = odd ? 6 : 64;
    return c;
}
// Qwen 3's: a norm of each query and key head.
inline ModelConfig small_qwen3(bool odd) {
    ModelConfig c = small_llama(odd);
    c.name += " qwen3";
    c.qk_norm = true;
    return c;
}
inline std::vector<ModelConfig> small_models() {
    return {small_config(false), small_config(true), small_llama(false),
            small_llama(true),   small_qwen3(false), small_qwen3(true)};
}

// A model on either backend, of the same weights: representable in bf16, so that all backends
// compute from equal numbers.
template <class Elem, class Stream>
struct Model {
    std::unique_ptr<Comm> comm = comm_self();
    StreamOwner<Stream> stream;
    Memory<Stream> memory{stream.get()};
    ModelConfig cfg;
    Shards<Elem, Stream> shards;
    Gpt<Elem, Stream> gpt;
    int B, T;

    explicit Model(const ModelConfig& c, int B = 2, int T = 33,
                   Recompute recompute = Recompute::None, ShardsConfig config = {})
        : cfg(c),
          shards(param_layout(c), config, *comm, memory),
          gpt(gpt_create<Elem>(c, B, T, recompute, false, memory)),
          B(B),
          T(T) {
        for (TensorSlice& s : shards.master_slices()) {
            param_init(s.data, *s.tensor, 0, s.count, 1);
            // Three times GPT-2's deviation, so that every path has a gradient worth testing.
            for (int64_t i = 0; i < s.count; i++)
                s.data[i] = to_float(to_bf16(s.data[i] * (s.tensor->init_std > 0 ? 3.f : 1.f)));
        }
        shards.state_from_host(0);
    }
    std::vector<int> ids(uint64_t stream_of_ids, int first_row = 0) const {
        std::vector<int> x;
        for (int i = first_row * T; i < (first_row + B) * T; i++)
            x.push_back(int(random_bits(3, stream_of_ids, uint64_t(i)) % unsigned(cfg.V)));
        return x;
    }
    // Rows first_row ... of the one batch that all tests use.
    void micro_batch(float scale, int first_row = 0) {
        std::vector<int> targets = ids(1, first_row);
        if (first_row == 0) targets[1] = kIgnoreTarget;
        gpt_forward_backward(gpt, shards, ids(0, first_row).data(), targets.data(), scale);
    }
    double loss() { return fixed_sum_value(gpt_loss_sum(gpt)); }
    std::vector<float> gradients(float scale) {
        gpt_loss_reset(gpt);
        micro_batch(scale);
        return floats(shards.grads_acquire(0));
    }
    std::vector<float> floats(const float* device) {
        std::vector<float> x(size_t(shards.layout().size));
        memory_to_host(x.data(), device, x.size() * sizeof(float), gpt.stream);
        return x;
    }
    std::vector<float> masters() {
        shards.state_to_host();
        std::vector<float> x;
        for (const TensorSlice& s : shards.master_slices())
            x.insert(x.end(), s.data, s.data + s.count);
        return x;
    }
    void steps(int n, const AdamW& hyper, float scale, float most_norm = 1) {
        for (int t = 1; t <= n; t++) {
            gpt_loss_reset(gpt);
            micro_batch(scale);
            shards.reduce();
            shards.clip(most_norm, gpt.loss_sum);
            AdamW h = hyper;
            h.t = t;
            shards.step(h);
            shards.gather();
        }
    }
};
using Cpu = Model<float, CpuStream>;

inline double length(const float* x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += double(x[i]) * double(x[i]);
    return std::sqrt(sum);
}
inline double distance(const std::vector<float>& a, const std::vector<float>& b) {
    std::vector<float> d(a.size());
    for (size_t i = 0; i < a.size(); i++) d[i] = a[i] - b[i];
    return length(d.data(), int64_t(d.size()));
}
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// How far a tensor may be from the CPU's, as a share of its length. A gradient has passed through a
// chain of at most 14 operations a layer forward, as many backward, and 4 around the head: 60 here.
//   fp32: an operation sums up to n = 512 products in another order than the CPU's, which moves the
//         result by about sqrt(n) 2^-24 of its length (Higham 2002, section 2.8: random signs).
//   bf16: sums are fp32; each operation rounds its result to 8 bits, which is off by up to 2^-8 / m
//         for a mantissa of 1 <= m < 2. The root of the mean square is 2^-8 / sqrt(3) times that of
//         1 / m, 0.74 where m is spread as in numbers of many sizes (Benford's law).
// Errors of different operations are independent, so lengths add as squares: sqrt(60). Norms keep
// the stream's scale, so no operation enlarges what enters it much; a factor of 2 covers that.
template <class Elem>
double share() {
    const double one =
        std::is_same_v<Elem, float> ? std::sqrt(512.0) * 0x1p-24 : 0.74 * 0x1p-8 / std::sqrt(3.0);
    return 2 * std::sqrt(60.0) * one;
}
