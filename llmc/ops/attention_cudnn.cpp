#include "llmc/ops/attention_cudnn.h"

#include <cmath>
#include <map>

#include "llmc/core/check.h"
#include "llmc/core/plural.h"
#include "llmc/core/round.h"
#include "llmc/ops/cudnn_plan.h"

AttentionChoice attention_choice;

// Which operations, in which order, decides whether cuDNN recognises attention and answers with one
// fused kernel (its names say flash_fprop, flash_bprop). Since 9.13 cuDNN has attention as a single
// operation, but that one masks by a part of the graph only since 9.21. So the graphs here are of
// the plain operations that every cuDNN 9 knows: NVIDIA cuDNN documentation, "Graph API", fused
// flash attention fprop and bprop.
namespace cudnn {
namespace {

// A graph with the tensors of attention. What cuDNN calls a head's (T, HS) matrix lies strided in
// our packed rows.
struct Attention {
    const AttentionSize z;
    Graph g{};
    const Shape scores{z.B, z.H, z.T, z.T}, row_values{z.B, z.H, z.T, 1},
        heads{z.B, z.H, z.T, z.HS};
    const Tensor scale = g.constant(1 / std::sqrt(float(z.HS)));

    Tensor rows(int64_t id, int64_t count, int64_t width) {
        return g.memory(id, Type::BF16, {z.B, count, z.T, z.HS}, {z.T * width, z.HS, width, 1});
    }
    Tensor columns(int64_t id, int64_t count, int64_t width) {  // the same, transposed
        return g.memory(id, Type::BF16, {z.B, count, z.HS, z.T}, {z.T * width, z.HS, 1, width});
    }
    Tensor saved(int64_t id) { return g.memory(id, Type::F32, row_values, {z.H * z.T, z.T, 1, 1}); }
    Tensor apply(Op op, Tensor x, Tensor b = kNone, Type type = Type::F32) {
        const Tensor y = g.temporary(type, g.tensors[size_t(x)].shape);
        g.add(op, y, x, b);
        return y;
    }
    Tensor of_rows(Op op, Tensor x) {
        const Tensor y = g.temporary(Type::F32, row_values);
        g.add(op, y, x);
        return y;
    }
    Tensor product(Tensor a, Tensor b) {
        const Tensor s = g.temporary(Type::F32, scores);
        g.add(Op::Matmul, s, a, b);
        return s;
    }
    // y[t,u] = u <= t ? x[t,u] : -infinity
    Tensor causal(Tensor x) {
        const Tensor t = g.temporary(Type::I32, scores), u = g.temporary(Type::I32, scores);
        g.steps.push_back({Op::Index, t, x, kNone, kNone, 2});
        g.steps.push_back({Op::Index, u, x, kNone, kNone, 3});
        const Tensor seen = apply(Op::AtLeast, t, u, Type::Bool),
                     y = g.temporary(Type::F32, scores);
        g.add(Op::Select, y, x, g.constant(-INFINITY), seen);
        return y;
    }
    // dk or dv = weights^T rows, summed over the query heads that share a key/value head. The
    // transposed weights are the same numbers seen otherwise, in bf16 for the tensor cores.
    void sum_over_queries(Tensor y, Tensor weights, Tensor rows, bool deterministic) {
        const Tensor turned = g.temporary(Type::BF16, scores, {z.H * z.T * z.T, z.T * z.T, 1, z.T});
        g.add(Op::View, turned, weights);
        if (z.H == z.KV) return g.add(Op::Matmul, y, turned, rows);
        const Tensor each = g.temporary(Type::BF16, heads);
        g.add(Op::Matmul, each, turned, rows);
        g.steps.push_back({Op::Sum, y, each, kNone, kNone, 0, deterministic});
    }
};

}  // namespace

//   S = mask(q k^T scale),  m = max S,  e = exp(S - m),  l = sum e
//   lse = m + log l,  out = (e / l) v
Graph attention_forward_graph(const AttentionSize& z) {
    Attention a{z};
    const Tensor q = a.rows(kQ, z.H, z.packed()), k = a.columns(kK, z.KV, z.packed()),
                 v = a.rows(kV, z.KV, z.packed()), out = a.rows(kOut, z.H, z.H * z.HS);
    const Tensor s = a.causal(a.apply(Op::Multiply, a.product(q, k), a.scale));
    const Tensor most = a.of_rows(Op::Max, s);
    const Tensor e = a.apply(Op::Exp, a.apply(Op::Subtract, s, most));
    const Tensor sum = a.of_rows(Op::Sum, e);
    a.g.add(Op::Add, a.saved(kLse), most, a.apply(Op::Log, sum));
    a.g.add(Op::Matmul, out, a.apply(Op::Divide, e, sum, Type::BF16), v);
    return a.g;
}

//   delta = sum dout * out,  P = exp(mask(q k^T scale - lse)),  dv = P^T dout
//   dS = (dout v^T - delta) * P * scale,  dk = dS^T q,  dq = dS k
Graph attention_backward_graph(const AttentionSize& z, bool deterministic) {
    Attention a{z};
    Graph& g = a.g;
    const int64_t wide = z.packed();
    const Tensor q = a.rows(kQ, z.H, wide), k = a.columns(kK, z.KV, wide),
                 v = a.columns(kV, z.KV, wide), out = a.rows(kOut, z.H, z.H * z.HS),
                 dout = a.rows(kDout, z.H, z.H * z.HS), lse = a.saved(kLse);
    const Tensor dq = a.rows(kDq, z.H, wide), dk = a.rows(kDk, z.KV, wide),
                 dv = a.rows(kDv, z.KV, wide);

    // delta is kept in memory between two kernels. The product with 1 stands where dropout would.
    const Tensor delta = a.saved(kDelta);
    const Tensor sum = a.of_rows(Op::Sum, a.apply(Op::Multiply, dout, out));
    g.add(Op::Multiply, delta, sum, g.constant(1));

    const Tensor s = a.apply(Op::Multiply, a.product(q, k), a.scale);
    const Tensor p = a.apply(Op::Exp, a.causal(a.apply(Op::Subtract, s, lse)));
    a.sum_over_queries(dv, p, dout, deterministic);

    const Tensor centred = a.apply(Op::Subtract, a.product(dout, v), delta);
    const Tensor ds = a.apply(Op::Multiply, a.apply(Op::Multiply, centred, p), a.scale);
    a.sum_over_queries(dk, ds, q, deterministic);

    // dq is a sum over blocks of keys. In fp32 memory they add to it as they come; where it is
    // written straight, cuDNN keeps dS in its workspace and sums in order.
    const Tensor keys =
        g.temporary(Type::BF16, {z.B, z.KV, z.T, z.HS}, {z.T * wide, z.HS, wide, 1});
    g.add(Op::View, keys, k);
    if (deterministic) {
        g.add(Op::Matmul, dq, ds, keys);
    } else {
        const Tensor dq_sum =
            g.memory(kDqSum, Type::F32, a.heads, {z.H * z.T * z.HS, z.T * z.HS, z.HS, 1});
        g.add(Op::Matmul, dq_sum, ds, keys);
        g.add(Op::Copy, dq, dq_sum);
    }
    return a.g;
}

namespace {

// Backward's own buffers come first in the workspace, cuDNN's behind them.
struct Buffers {
    static constexpr size_t kAlign = 256;
    size_t delta, dq_sum;
    Buffers(const AttentionSize& z, bool backward)
        : delta(backward ? round_up(size_t(z.B * z.H * z.T) * sizeof(float), kAlign) : 0),
          dq_sum(backward && !attention_choice.deterministic
                     ? round_up(size_t(z.B * z.H * z.T * z.HS) * sizeof(float), kAlign)
                     : 0) {}
    size_t bytes() const { return delta + dq_sum; }
};

const Plan& plan_for(const AttentionSize& z, bool backward) {
    static std::map<std::tuple<AttentionSize, bool, bool>, Plan> plans;
    const bool deterministic = attention_choice.deterministic || !backward;
    const auto key = std::make_tuple(z, backward, deterministic);
    const auto found = plans.find(key);
    if (found != plans.end()) return found->second;
    try {
        return plans
            .try_emplace(
                key,
                backward ? attention_backward_graph(z, deterministic) : attention_forward_graph(z),
                Device::this_one())
            .first->second;
    } catch (const Error& e) {
        fail(e.code, str("--attention cudnn, ", backward ? "backward" : "forward", " of B ", z.B,
                         ", T ", z.T, ", ", counted(z.H, "head"), " of ", z.HS, ", ", z.KV,
                         " for keys: ", e.what()));
    }
}

bf16* writable(const bf16* p) {  // cuDNN's table of addresses makes no difference
    return const_cast<bf16*>(p);
}

// Checks the workspace, and hands out what lies behind our own buffers in it.
void* library_workspace(const AttentionSize& z, bool backward, Workspace ws) {
    const Buffers own(z, backward);
    workspace_check("cuDNN attention", ws, own.bytes() + plan_for(z, backward).workspace_bytes());
    return static_cast<char*>(ws.data) + own.bytes();
}

}  // namespace
}  // namespace cudnn

size_t attention_cudnn_workspace_bytes(int B, int T, int H, int KV, int HS, bool backward) {
    const cudnn::AttentionSize z{B, T, H, KV, HS};
    return cudnn::Buffers(z, backward).bytes() + cudnn::plan_for(z, backward).workspace_bytes();
}

void attention_cudnn_forward(bf16* out, float* lse, const bf16* qkv, int B, int T, int H, int KV,
                             int HS, Workspace ws, CudaStream s) {
    using namespace cudnn;
    const AttentionSize z{B, T, H, KV, HS};
    bf16* const q = writable(qkv);
    void* const theirs = library_workspace(z, false, ws);
    plan_for(z, false).execute(
        {{kQ, q}, {kK, q + H * HS}, {kV, q + (H + KV) * HS}, {kOut, out}, {kLse, lse}}, theirs,
        s.handle);
}

void attention_cudnn_backward(bf16* dqkv, const bf16* dout, const bf16* qkv, const bf16* out,
                              const float* lse, int B, int T, int H, int KV, int HS, Workspace ws,
                              CudaStream s) {
    using namespace cudnn;
    const AttentionSize z{B, T, H, KV, HS};
    const Buffers own(z, true);
    bf16* const q = writable(qkv);
    void* const theirs = library_workspace(z, true, ws);
    char* const base = static_cast<char*>(ws.data);
    std::vector<Plan::Address> addresses = {{kQ, q},
                                            {kK, q + H * HS},
                                            {kV, q + (H + KV) * HS},
                                            {kOut, writable(out)},
                                            {kDout, writable(dout)},
                                            {kLse, const_cast<float*>(lse)},
                                            {kDq, dqkv},
                                            {kDk, dqkv + H * HS},
                                            {kDv, dqkv + (H + KV) * HS},
                                            {kDelta, base}};
    if (own.dq_sum) addresses.push_back({kDqSum, base + own.delta});
    plan_for(z, true).execute(addresses, theirs, s.handle);
}
