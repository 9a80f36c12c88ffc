#include "llmc/model/gpt.h"

#include "llmc/model/block.h"
#include "llmc/ops/classifier.h"
#include "llmc/ops/embedding.h"
#include "llmc/parallel/liveness.h"

template <class Elem, class Stream>
Gpt<Elem, Stream> gpt_create(const ModelConfig& cfg, int B, int T, Recompute recompute,
                             bool forward_only, Memory<Stream>& memory) {
    Gpt<Elem, Stream> g{cfg, recompute, memory.stream(), {}, nullptr};
    g.acts = activations_create<Elem>(cfg, B, T, recompute, forward_only, memory);
    g.loss_sum = memory.template get<FixedSum>("workspace", "loss sum", 1);
    return g;
}

template <class Elem, class Stream>
void gpt_forward(Gpt<Elem, Stream>& g, Shards<Elem, Stream>& shards, const int* tokens) {
    const ModelConfig& c = g.cfg;
    Activations<Elem>& a = g.acts;
    const ParamLayout& layout = shards.layout();
    const int B = a.B, T = a.T, N = B * T;
    memory_from_host(a.tokens, tokens, size_t(N) * sizeof(int), g.stream);

    const int e = layout.embedding(), h = layout.head();
    const auto embedding = embedding_params(layout.blocks[e], shards.params_acquire(e));
    embedding_forward(a.layers[0].res1, a.tokens, embedding.wte, embedding.wpe, B, T, c.C,
                      g.stream);
    shards.params_release(e);

    for (int l = 0; l < c.L; l++) {
        const int b = layout.layer(l);
        const auto p = layer_params(layout.blocks[b], shards.params_acquire(b));
        block_forward<Elem>(a.layers[l], a, l ? a.layers[l - 1].res2 : nullptr, p, c, g.stream);
        shards.params_release(b);
        liveness_mark();
    }

    const auto head = head_params(layout.blocks[h], shards.params_acquire(h));
    residual_norm_forward<Elem>(c, a.resf, a.lnf, a.meanf, a.rstdf, a.layers[c.L - 1].res2,
                                a.branch, head.lnfw, head.lnfb, N, g.stream);
    shards.params_release(h);
}

// The matrix that turns the head's input into logits: the head's own or the token embedding.
template <class Elem>
static Elem* head_matrix(const ParamLayout& layout, Elem* embedding, Elem* head) {
    Elem* own = head_params(layout.blocks[layout.head()], head).lmw;
    return own ? own : embedding_params(layout.blocks[layout.embedding()], embedding).wte;
}

template <class Elem, class Stream>
void gpt_logits(Gpt<Elem, Stream>& g, Shards<Elem, Stream>& shards, int64_t n, float* logits) {
    const ModelConfig& c = g.cfg;
    Activations<Elem>& a = g.acts;
    const ParamLayout& layout = shards.layout();
    const int e = layout.embedding(), h = layout.head();
    const Elem* lmw = head_matrix(layout, shards.params_acquire(e), shards.params_acquire(h));
    const Elem* none = nullptr;
    matmul_forward(a.logits, a.lnf + n * c.C, lmw, none, 1, c.C, c.Vp, a.ws, g.stream);
    shards.params_release(h);
    shards.params_release(e);
    std::vector<Elem> row(size_t(c.V));
    memory_to_host(row.data(), a.logits, row.size() * sizeof(Elem), g.stream);
    for (size_t v = 0; v < row.size(); v++) logits[v] = to_float(row[v]);
}

template <class Elem, class Stream>
void gpt_forward_loss(Gpt<Elem, Stream>& g, Shards<Elem, Stream>& shards, const int* tokens,
                      const int* targets) {
    const ModelConfig& c = g.cfg;
    Activations<Elem>& a = g.acts;
    const ParamLayout& layout = shards.layout();
    const int N = a.B * a.T, e = layout.embedding(), h = layout.head();
    gpt_forward(g, shards, tokens);
    memory_from_host(a.targets, targets, size_t(N) * sizeof(int), g.stream);

    const Elem* lmw = head_matrix(layout, shards.params_acquire(e), shards.params_acquire(h));
    for (int n = 0; n < N; n += a.head_rows) {
        const int rows = std::min(a.head_rows, N - n);
        const Elem* none = nullptr;
        matmul_forward(a.logits, a.lnf + int64_t(n) * c.C, lmw, none, rows, c.C, c.Vp, a.ws,
                       g.stream);
        classifier_forward(a.losses + n, a.logits, a.targets + n, rows, c.V, c.Vp, g.stream);
        liveness_mark();
    }
    shards.params_release(h);
    shards.params_release(e);
    sum_of_elements(g.loss_sum, a.losses, size_t(N), g.stream);
}

// Head: losses, the gradient of the head's input (into a.branch), and of its matrix. The logits of
// a few rows exist at a time.
template <class Elem, class Stream>
static void head_forward_backward(Activations<Elem>& a, const Elem* lmw, float* dlmw, float scale,
                                  const ModelConfig& c, Stream s) {
    const int N = a.B * a.T;
    for (int n = 0; n < N; n += a.head_rows) {
        const int rows = std::min(a.head_rows, N - n);
        const Elem* lnf = a.lnf + int64_t(n) * c.C;
        const Elem* none = nullptr;
        matmul_forward(a.logits, lnf, lmw, none, rows, c.C, c.Vp, a.ws, s);
        classifier_forward_backward(a.losses + n, a.logits, a.targets + n, scale, rows, c.V, c.Vp,
                                    s);
        matmul_backward_params(dlmw, nullptr, a.logits, lnf, rows, c.C, c.Vp, a.ws, s);
        matmul_backward_input(a.branch + int64_t(n) * c.C, a.logits, lmw, rows, c.C, c.Vp, a.ws, s);
        liveness_mark();
    }
}

template <class Elem, class Stream>
void gpt_forward_backward(Gpt<Elem, Stream>& g, Shards<Elem, Stream>& shards, const int* tokens,
                          const int* targets, float scale) {
    const ModelConfig& c = g.cfg;
    Activations<Elem>& a = g.acts;
    const ParamLayout& layout = shards.layout();
    const int B = a.B, T = a.T, N = B * T, e = layout.embedding(), h = layout.head();
    gpt_forward(g, shards, tokens);
    memory_from_host(a.targets, targets, size_t(N) * sizeof(int), g.stream);

    // Head
    {
        Elem *embedding = shards.params_acquire(e), *head = shards.params_acquire(h);
        float *dembedding = shards.grads_acquire(e), *dhead = shards.grads_acquire(h);
        const auto p = head_params(layout.blocks[h], head);
        const auto d = head_params(layout.blocks[h], dhead);
        head_forward_backward<Elem>(a, head_matrix(layout, embedding, head),
                                    head_matrix(layout, dembedding, dhead), scale, c, g.stream);
        sum_of_elements(g.loss_sum, a.losses, size_t(N), g.stream);
        norm_backward<Elem>(c, a.dres, d.lnfw, d.lnfb, a.branch, a.resf, p.lnfw, a.meanf, a.rstdf,
                            N, a.ws, g.stream);
        shards.params_release(h);
        shards.params_release(e);
        shards.grads_release(h);
    }
    // Layers
    for (int l = c.L - 1; l >= 0; l--) {
        const int b = layout.layer(l);
        const auto p = layer_params(layout.blocks[b], shards.params_acquire(b));
        const auto d = layer_params(layout.blocks[b], shards.grads_acquire(b));
        block_backward<Elem>(a.layers[l], a, p, d, g.recompute, c, g.stream);
        shards.params_release(b);
        shards.grads_release(b);
        liveness_mark();
    }
    // Embedding
    const auto d = embedding_params(layout.blocks[e], shards.grads_acquire(e));
    embedding_backward(d.wte, d.wpe, a.dres, a.tokens, B, T, c.C, c.V, a.ws, g.stream);
    shards.grads_release(e);
}

template <class Elem, class Stream>
void gpt_loss_reset(Gpt<Elem, Stream>& g) {
    memory_zero(g.loss_sum, sizeof(FixedSum), g.stream);
}

template <class Elem, class Stream>
FixedSum gpt_loss_sum(Gpt<Elem, Stream>& g) {
    FixedSum sum;
    memory_to_host(&sum, g.loss_sum, sizeof sum, g.stream);
    return sum;
}

#define GPT_FOR(Elem, Stream)                                                                 \
    template Gpt<Elem, Stream> gpt_create(const ModelConfig&, int, int, Recompute, bool,      \
                                          Memory<Stream>&);                                   \
    template void gpt_forward(Gpt<Elem, Stream>&, Shards<Elem, Stream>&, const int*);         \
    template void gpt_logits(Gpt<Elem, Stream>&, Shards<Elem, Stream>&, int64_t, float*);     \
    template void gpt_forward_loss(Gpt<Elem, Stream>&, Shards<Elem, Stream>&, const int*,     \
                                   const int*);                                               \
    template void gpt_forward_backward(Gpt<Elem, Stream>&, Shards<Elem, Stream>&, const int*, \
                                       const int*, float);                                    \
    template void gpt_loss_reset(Gpt<Elem, Stream>&);                                         \
    template FixedSum gpt_loss_sum(Gpt<Elem, Stream>&);
GPT_FOR(float, CpuStream)
FOR_CUDA(GPT_FOR(float, CudaStream) GPT_FOR(bf16, CudaStream))
