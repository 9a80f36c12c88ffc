#include "llmc/model/activations.h"

#include "llmc/core/dtype.h"
#include "llmc/core/layout.h"
#include "llmc/core/round.h"
#include "llmc/model/norm.h"
#include "llmc/ops/attention.h"
#include "llmc/ops/embedding.h"
#include "llmc/ops/matmul.h"
#include "llmc/ops/qknorm.h"

// The largest scratch that any op of one step asks for.
template <class Elem, class Stream>
static size_t model_workspace_bytes(const ModelConfig& c, int B, int T, int head_rows, Stream s) {
    const int N = B * T;
    return std::max(
        {matmul_workspace_bytes(N, c.C, c.QKV(), s), matmul_workspace_bytes(N, c.A(), c.C, s),
         matmul_workspace_bytes(N, c.C, c.FC(), s), matmul_workspace_bytes(N, c.F, c.C, s),
         matmul_workspace_bytes(head_rows, c.C, c.Vp, s),
         attention_forward_workspace_bytes(B, T, c.H, c.KV, c.HS(), s),
         attention_backward_workspace_bytes(B, T, c.H, c.KV, c.HS(), s),
         norm_backward_workspace_bytes(c, N, s),
         c.qk_norm ? qknorm_backward_workspace_bytes(N, c.H, c.KV, c.HS(), s) : 0,
         embedding_backward_workspace_bytes(B, T, c.C, c.V, s)});
}

// Asks for activations by name.
template <class T, class Stream>
static T* values(Memory<Stream>& memory, const std::string& name, int64_t n) {
    return memory.template get<T>("activations", name, n);
}

// What recompute drops exists once and serves every layer; the rest exists once a layer.
template <class Elem, class Stream>
static std::vector<LayerActs<Elem>> layers_create(const ModelConfig& c, int64_t N,
                                                  Recompute recompute, Memory<Stream>& memory) {
    // Sizes of one layer's tensors, rounded up so that the next layer's is aligned too.
    const auto up = [](int64_t n) { return round_up(n, kTensorAlign); };
    const int64_t rows = up(N), NC = up(N * c.C), NF = up(N * c.F);
    const int64_t NA = up(N * c.A()), NFC = up(N * c.FC());
    const int64_t NQKV = up(N * c.QKV()), NH = up(N * c.H);
    const int64_t NHEADS = up(N * (c.H + c.KV)), NQK = up(N * (c.H + c.KV) * c.HS());
    const auto elems = [&](const char* name, int64_t n) { return values<Elem>(memory, name, n); };
    const auto floats = [&](const char* name, int64_t n) { return values<float>(memory, name, n); };

    const int L = c.L;
    const int kept = recompute == Recompute::Block ? 1 : L;   // most values
    const int remade = recompute == Recompute::None ? L : 1;  // norm and GELU outputs
    Elem* res1 = elems("residual at layer entry", L * NC);
    Elem* ln1 = elems("norm 1 output", remade * NC);
    float* stats = floats("norm means and deviations", 4 * kept * rows);
    Elem* qkv = elems("q, k, v", kept * NQKV);
    Elem* qk = c.qk_norm ? elems("q, k before their norm", kept * NQK) : nullptr;
    float* rstdqk = c.qk_norm ? floats("deviations of q and k", kept * NHEADS) : nullptr;
    Elem* atty = elems("attention output", kept * NA);
    float* lse = floats("attention log-sum-exp", kept * NH);
    Elem* res2 = elems("residual after attention", kept * NC);
    Elem* ln2 = elems("norm 2 output", remade * NC);
    Elem* pre = elems("MLP before its activation", kept * NFC);
    Elem* act = elems("MLP after its activation", remade * NF);
    std::vector<LayerActs<Elem>> layers;
    for (int64_t l = 0; l < L; l++) {
        const int64_t k = kept == 1 ? 0 : l, r = remade == 1 ? 0 : l;
        LayerActs<Elem> x{};
        if (!memory.measuring()) {
            float* s = stats + 4 * k * rows;
            x.res1 = res1 + l * NC, x.ln1 = ln1 + r * NC, x.mean1 = s, x.rstd1 = s + rows;
            x.qkv = qkv + k * NQKV, x.atty = atty + k * NA, x.lse = lse + k * NH;
            if (c.qk_norm) x.qk = qk + k * NQK, x.rstdqk = rstdqk + k * NHEADS;
            x.res2 = res2 + k * NC, x.ln2 = ln2 + r * NC;
            x.mean2 = s + 2 * rows, x.rstd2 = s + 3 * rows;
            x.pre = pre + k * NFC, x.act = act + r * NF;
        }
        layers.push_back(x);
    }
    return layers;
}

template <class Elem, class Stream>
Activations<Elem> activations_create(const ModelConfig& c, int B, int T, Recompute recompute,
                                     bool forward_only, Memory<Stream>& memory) {
    const int64_t N = int64_t(B) * T;
    const auto elems = [&](const std::string& name, int64_t n) {
        return values<Elem>(memory, name, n);
    };
    const auto floats = [&](const char* name, int64_t n) { return values<float>(memory, name, n); };
    Activations<Elem> a{};
    a.B = B, a.T = T, a.head_rows = head_rows<Elem>(c, N);
    a.tokens = values<int>(memory, "tokens", N), a.targets = values<int>(memory, "targets", N);
    a.layers = layers_create<Elem>(c, N, recompute, memory);
    a.resf = elems("residual at the head", N * c.C);
    a.lnf = elems("final norm output", N * c.C);
    a.meanf = floats("final norm mean", N), a.rstdf = floats("final norm deviation", N);
    a.losses = floats("losses", N);
    a.logits =
        elems("logits (" + std::to_string(a.head_rows) + " rows)", int64_t(a.head_rows) * c.Vp);
    a.branch = elems("branch", N * std::max(c.C, c.A()));
    if (!forward_only) {
        a.dres = elems("gradient of the residual", N * c.C);
        a.dwide = elems("gradient of q, k, v or the MLP", N * std::max(c.FC(), c.QKV()));
    }
    if (c.positions == Positions::Rotary) {
        a.rope = floats("rotary table", int64_t(T) * c.HS());
        if (!memory.measuring()) {
            std::vector<float> table(size_t(T) * c.HS());
            rope_table(table.data(), 0, T, c.HS(), c.rope_theta, c.rope_scaling);
            memory_from_host(a.rope, table.data(), table.size() * sizeof(float), memory.stream());
        }
    }
    a.ws =
        memory.workspace("ops", model_workspace_bytes<Elem>(c, B, T, a.head_rows, memory.stream()));
    return a;
}

template Activations<float> activations_create(const ModelConfig&, int, int, Recompute, bool,
                                               Memory<CpuStream>&);
FOR_CUDA(template Activations<float> activations_create(const ModelConfig&, int, int, Recompute,
                                                        bool, Memory<CudaStream>&);
         template Activations<bf16> activations_create(const ModelConfig&, int, int, Recompute,
                                                       bool, Memory<CudaStream>&);)
