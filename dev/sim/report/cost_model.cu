// The ops that the cost report measures: one row each, with the bytes that must move.
#include "cost_model.h"

#include <functional>

#include "llmc/core/launch.cuh"
#include "llmc/ops/adamw.h"
#include "llmc/ops/attention.h"
#include "llmc/ops/classifier.h"
#include "llmc/ops/embedding.h"
#include "llmc/ops/gelu.h"
#include "llmc/ops/layernorm.h"
#include "llmc/ops/matmul.cuh"
#include "llmc/ops/matmul.h"
#include "llmc/ops/qknorm.h"
#include "llmc/ops/reduce_sums.h"
#include "llmc/ops/rmsnorm.h"
#include "llmc/ops/rope.h"
#include "llmc/ops/swiglu.h"
#include "llmc/ops/wire.h"

namespace {

constexpr CudaStream kStream{};
constexpr int kN = 512;                    // rows, where their number does not matter
constexpr int kTokens = 2048;              // two sequences of GPT-2 124M
constexpr int kBackwardN = 8192;           // layernorm's partial sums weigh less the more rows
constexpr int kV = 50257, kVp = 50304;     // its vocabulary, padded
constexpr int kRows = 4;                   // of the classifier at a time here
constexpr int kT = 256, kH = 1, kHS = 64;  // attention
constexpr size_t kParams = 1 << 18;        // elements of the optimizer's and the sums' arrays

// Device memory that holds zeros: counts do not depend on values.
class Memory {
  public:
    explicit Memory(size_t bytes) : p_(memory_alloc(bytes, "cost model", kStream)), bytes_(bytes) {}
    ~Memory() { memory_free(p_, bytes_, kStream); }
    Memory(const Memory&) = delete;
    template <class T>
    operator T*() const {
        return static_cast<T*>(p_);
    }
    operator Workspace() const { return {p_, bytes_}; }

  private:
    void* p_;
    size_t bytes_;
};

struct Report {
    std::string filter;
    int width;
    std::vector<Cost> costs;

    // Measures run(), which has to move `least` bytes.
    void row(const std::string& op, const std::string& type, double least,
             const std::function<void()>& run, const Goal& goal = {}) {
        if (op.find(filter) == std::string::npos) return;
        stream_sync(kStream);
        cusim::counters_reset();
        run();
        stream_sync(kStream);
        costs.push_back({op, type, least, goal, cusim::counters_total()});
    }
};

template <class Elem>
void layernorm_rows(Report& r, const char* type) {
    const int C = r.width;
    const double E = sizeof(Elem), params = C * E;
    const auto rows = [&](int N) { return double(N) * C * E; };
    const auto stats = [](int N) { return 2.0 * N * 4; };
    const size_t n = size_t(kBackwardN) * C;
    Memory x(n * sizeof(Elem)), y(n * sizeof(Elem)), branch(n * sizeof(Elem)),
        residual(n * sizeof(Elem)), w(C * sizeof(Elem)), b(C * sizeof(Elem)), mean(kBackwardN * 4),
        rstd(kBackwardN * 4), dw(C * 4), db(C * 4),
        ws(layernorm_backward_workspace_bytes(kBackwardN, C, kStream));
    r.row("layernorm_forward", type, 2 * rows(kN) + stats(kN) + 2 * params,
          [&] { layernorm_forward<Elem>(y, mean, rstd, x, w, b, kN, C, 1e-5f, kStream); });
    r.row("residual_layernorm_forward", type, 4 * rows(kN) + stats(kN) + 2 * params, [&] {
        residual_layernorm_forward<Elem>(residual, y, mean, rstd, x, branch, w, b, kN, C, 1e-5f,
                                         kStream);
    });
    // dy, x read, dx written; dw and db read and written.
    const double grads = params + 4.0 * C * 4;
    const int N = kBackwardN;
    r.row("layernorm_backward", type, 3 * rows(N) + stats(N) + grads, [&] {
        layernorm_backward<Elem>(y, dw, db, x, branch, w, mean, rstd, N, C, ws, kStream);
    });
    r.row("residual_layernorm_backward", type, 4 * rows(N) + stats(N) + grads, [&] {
        residual_layernorm_backward<Elem>(residual, dw, db, x, branch, w, mean, rstd, N, C, ws,
                                          kStream);
    });
}

// What LLaMA has in place of layernorm and GELU, and its positions.
template <class Elem>
void llama_rows(Report& r, const char* type) {
    const int C = r.width, N = kBackwardN, H = C / kHS;
    const double E = sizeof(Elem), row = double(C) * E;
    Memory x(size_t(N) * C * sizeof(Elem)), y(size_t(N) * C * sizeof(Elem)),
        branch(size_t(N) * C * sizeof(Elem)), w(C * sizeof(Elem)), rstd(N * 4), dw(C * 4),
        ws(rmsnorm_backward_workspace_bytes(N, C, kStream));
    r.row("rmsnorm_forward", type, kN * (2 * row + 4) + row,
          [&] { rmsnorm_forward<Elem>(y, rstd, x, w, kN, C, 1e-5f, kStream); });
    r.row("rmsnorm_backward", type, N * (3 * row + 4) + row + 8.0 * C,
          [&] { rmsnorm_backward<Elem>(y, dw, x, branch, w, rstd, N, C, ws, kStream); });
    Memory pre(2 * kN * C * sizeof(Elem)), dpre(2 * kN * C * sizeof(Elem));
    r.row("swiglu_forward", type, kN * 3 * row,
          [&] { swiglu_forward<Elem>(y, pre, kN, C, kStream); });
    r.row("swiglu_backward", type, kN * 5 * row,
          [&] { swiglu_backward<Elem>(dpre, y, pre, kN, C, kStream); });
    constexpr int B = 2, T = kN / B;
    Memory qkv(kN * 3 * C * sizeof(Elem)), table(T * kHS * 4);
    for (const RopePairs pairs : {RopePairs::Half, RopePairs::Interleaved})
        r.row(pairs == RopePairs::Half ? "rope, halves" : "rope, interleaved", type,
              kN * 4 * row + T * kHS * 4,
              [&] { rope<Elem>(qkv, table, B, T, H, H, kHS, pairs, 1, kStream); });
}

// Qwen 3's norm of heads, at its head size; a quarter of the heads are keys.
template <class Elem>
void qknorm_rows(Report& r, const char* type) {
    constexpr int N = kBackwardN, HS = 128, H = 3, KV = 1;
    constexpr double E = sizeof(Elem), heads = double(N) * (H + KV), elements = heads * HS * E;
    Memory qkv(size_t(N) * (H + 2 * KV) * HS * sizeof(Elem)), qk{size_t(elements)},
        rstd{size_t(heads) * 4}, w(HS * sizeof(Elem)), dqw(HS * 4), dkw(HS * 4),
        ws(qknorm_backward_workspace_bytes(N, H, KV, HS, kStream));
    r.row("qknorm_forward", type, 3 * elements + heads * 4 + HS * E,
          [&] { qknorm_forward<Elem>(qkv, qk, rstd, w, w, N, H, KV, HS, 1e-6f, kStream); });
    r.row("qknorm_backward", type, 3 * elements + heads * 4 + HS * E + 4 * HS * 4,
          [&] { qknorm_backward<Elem>(qkv, dqw, dkw, qk, w, w, rstd, N, H, KV, HS, ws, kStream); });
}

template <class Elem>
void elementwise_rows(Report& r, const char* type) {
    const size_t n = size_t(kN) * r.width;
    Memory x(n * sizeof(Elem)), y(n * sizeof(Elem)), z(n * sizeof(Elem));
    r.row("gelu_forward", type, 2.0 * n * sizeof(Elem),
          [&] { gelu_forward<Elem>(y, x, n, kStream); });
    r.row("gelu_backward", type, 3.0 * n * sizeof(Elem),
          [&] { gelu_backward<Elem>(z, y, x, n, kStream); });
}

template <class Elem>
void embedding_rows(Report& r, const char* type) {
    // GPT-2 124M's width always: the lists of positions weigh more the fewer the channels.
    constexpr int B = 2, T = kTokens / B, C = 768;
    const double row = C * sizeof(Elem);
    std::vector<int> host(kTokens);
    for (int i = 0; i < kTokens; i++) host[i] = i * 24;  // all different
    Memory tokens(kTokens * 4), x(kTokens * C * sizeof(Elem)), wte(size_t(kVp) * C * sizeof(Elem)),
        wpe(T * C * sizeof(Elem)), dwte(size_t(kVp) * C * 4), dwpe(T * C * 4),
        ws(embedding_backward_workspace_bytes(B, T, C, kVp, kStream));
    memory_from_host(tokens, host.data(), kTokens * 4, kStream);
    r.row("embedding_forward", type, (2 * kTokens + T) * row + kTokens * 4,
          [&] { embedding_forward<Elem>(x, tokens, wte, wpe, B, T, C, kStream); });
    // Gradients of the rows in use are read and written in fp32.
    r.row("embedding_backward", type, kTokens * row + kTokens * 4 + (kTokens + T) * C * 8.0,
          [&] { embedding_backward<Elem>(dwte, dwpe, x, tokens, B, T, C, kVp, ws, kStream); });
}

template <class Elem>
void classifier_rows(Report& r, const char* type) {
    const double E = sizeof(Elem);
    Memory logits(size_t(kRows) * kVp * sizeof(Elem)), losses(kRows * 4), targets(kRows * 4);
    r.row("classifier_forward", type, kRows * (kV * E + 8),
          [&] { classifier_forward<Elem>(losses, logits, targets, kRows, kV, kVp, kStream); });
    r.row("classifier_forward_backward", type, kRows * ((kV + kVp) * E + 8), [&] {
        classifier_forward_backward<Elem>(losses, logits, targets, 1.0f, kRows, kV, kVp, kStream);
    });
}

template <class Elem>
void adamw_row(Report& r, const char* type) {
    const size_t n = kParams;
    Memory p(n * 4), low(n * sizeof(Elem)), m(n * 4), v(n * 4), grad(n * 4), scale(4);
    const float one = 1;
    memory_from_host(scale, &one, 4, kStream);
    const bool copies = sizeof(Elem) == 2;
    const AdamW hyper{1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 1};
    r.row("adamw_update", type, n * (32.0 + (copies ? 2 : 0)), [&] {
        adamw_update<Elem>(p, copies ? static_cast<Elem*>(low) : nullptr, m, v, grad, scale, n,
                           hyper, RoundingKey{}, kStream);
    });
}

void sum_rows(Report& r) {
    const size_t n = kParams;
    Memory x(n * 4), acc(n * 8), y(n * 2), sum(sizeof(FixedSum)), bad(4);
    r.row("sum_of_squares", "fp32", 4.0 * n, [&] { sum_of_squares(sum, x, n, kStream); });
    r.row("sum_of_elements", "fp32", 4.0 * n, [&] { sum_of_elements(sum, x, n, kStream); });
    r.row("accumulate_fixed", "fp32", 24.0 * n,
          [&] { accumulate_fixed(acc, x, 1.f, bad, n, kStream); });
    r.row("fixed_to_float", "fp32", 12.0 * n, [&] { fixed_to_float(x, acc, n, kStream); });
    Memory most(4);
    for (const Wire wire : {Wire::Bf16, Wire::Fp16}) {
        const char* type = wire == Wire::Bf16 ? "bf16" : "fp16";
        r.row("wire_pack", type, 6.0 * n, [&] { wire_pack(y, x, n, wire, most, 2, kStream); });
        r.row("wire_unpack", type, 6.0 * n, [&] { wire_unpack(x, y, n, wire, most, 2, kStream); });
        r.row("wire_add", type, 10.0 * n, [&] { wire_add(x, y, n, wire, most, 2, kStream); });
    }
    r.row("wire_most", "fp32", 4.0 * n, [&] { wire_most(most, x, n, kStream); });
}

// Arithmetic bounds attention, but its accesses have goals too.
template <class Elem>
void attention_rows(Report& r, const char* type, int HS) {
    const size_t out_bytes = size_t(kT) * kH * HS * sizeof(Elem), lse_bytes = kH * kT * 4;
    Memory qkv(3 * out_bytes), out(out_bytes), dout(out_bytes), dqkv(3 * out_bytes), lse(lse_bytes),
        ws(std::max(attention_forward_workspace_bytes(1, kT, kH, kH, HS, kStream),
                    attention_backward_workspace_bytes(1, kT, kH, kH, HS, kStream)));
    const std::string head = " hd " + std::to_string(HS);
    r.row("attention_forward" + head, type, 4.0 * out_bytes + lse_bytes,
          [&] { attention_forward<Elem>(out, lse, qkv, 1, kT, kH, kH, HS, ws, kStream); });
    r.row(
        "attention_backward" + head, type, 8.0 * out_bytes + lse_bytes,
        [&] {
            attention_backward<Elem>(dqkv, dout, qkv, out, lse, 1, kT, kH, kH, HS, ws, kStream);
        },
        Goal{1.7, 0.95, 0,
             "the kernel for dk and dv and the one for dq both read q, k, v and dout; "
             "arithmetic bounds them"});
}

void matmul_rows(Report& r) {
    constexpr int N = 256, C = 256, OC = 512;
    Memory x(N * C * 2), w(OC * C * 2), y(N * OC * 2), dw(OC * C * 4), db(OC * 4),
        ws(matmul_workspace_bytes(N, C, OC, kStream));
    const char* const stores =
        "the readable product stores its fragments as they lie, half a sector at a time";
    matmul_path = MatmulPath::Own;
    r.row(
        "own matmul forward", "bf16", 2.0 * (N * C + OC * C + N * OC),
        [&] { matmul_forward<bf16>(y, x, w, nullptr, N, C, OC, ws, kStream); },
        Goal{1.05, 0.6, 0, stores});
    // dx from dy and w; dw and db, read and written, from dy and x.
    r.row(
        "own matmul backward", "bf16",
        2.0 * (N * OC + OC * C + N * C) + 2.0 * (N * OC + N * C) + 8.0 * (OC * C + OC),
        [&] {
            matmul_backward_input<bf16>(x, y, w, N, C, OC, ws, kStream);
            matmul_backward_params<bf16>(dw, db, y, x, N, C, OC, ws, kStream);
        },
        Goal{1.25, 0.6, 0, std::string("a kernel of its own sums dy for db; ") + stores});
    matmul_path = MatmulPath::Fused;
}

}  // namespace

std::vector<Cost> measure_costs(const std::string& filter, int width) {
    Report r{filter, width, {}};
    layernorm_rows<float>(r, "fp32");
    layernorm_rows<bf16>(r, "bf16");
    llama_rows<float>(r, "fp32");
    qknorm_rows<float>(r, "fp32");
    llama_rows<bf16>(r, "bf16");
    qknorm_rows<bf16>(r, "bf16");
    elementwise_rows<float>(r, "fp32");
    elementwise_rows<bf16>(r, "bf16");
    embedding_rows<float>(r, "fp32");
    embedding_rows<bf16>(r, "bf16");
    classifier_rows<float>(r, "fp32");
    classifier_rows<bf16>(r, "bf16");
    adamw_row<float>(r, "fp32");
    adamw_row<bf16>(r, "bf16");
    sum_rows(r);
    for (int HS : {64, 128}) attention_rows<bf16>(r, "bf16", HS);
    attention_rows<float>(r, "fp32", kHS);
    matmul_rows(r);
    return r.costs;
}
