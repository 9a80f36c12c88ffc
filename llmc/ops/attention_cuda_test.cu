// attention.h on CUDA against the CPU: tensor-core kernels and plain ones, ragged T, grouped heads.
#include "llmc/ops/attention.h"

#include "llmc/ops/cuda_test.cuh"

namespace {

struct Size {
    int B, T, H, KV, HS;
};
// bf16 with head size 64 or 128 runs on tensor cores, everything else on plain arithmetic. T below,
// at and beyond the tiles of 32, 64 and 128.
constexpr Size kTensorCoreSizes[] = {{1, 1, 1, 1, 64},   {2, 64, 2, 2, 64},  {1, 129, 2, 1, 64},
                                     {1, 200, 1, 1, 64}, {1, 63, 4, 2, 64},  {1, 65, 2, 2, 128},
                                     {1, 150, 2, 1, 128}};
constexpr Size kPlainSizes[] = {{1, 1, 1, 1, 8},  {2, 33, 2, 2, 16}, {1, 70, 4, 2, 5},
                                {1, 40, 2, 1, 64}, {1, 37, 1, 1, 128}, {1, 35, 2, 2, 200},
                                {1, 33, 1, 1, 256}};

// Everything the CPU computes, in fp32, from the same (rounded) inputs.
template <class Elem>
struct Reference {
    Elems<Elem> qkv, dout;
    Floats out, lse, dqkv;
    Reference(Size z, float std)
        : qkv(random_elems<Elem>(size_t(z.B) * z.T * (z.H + 2 * z.KV) * z.HS, "qkv", std)),
          dout(random_elems<Elem>(size_t(z.B) * z.T * z.H * z.HS, "dout")),
          out(dout.size()),
          lse(size_t(z.B) * z.H * z.T),
          dqkv(qkv.size()) {
        const auto [B, T, H, KV, HS] = z;
        Floats ws(std::max(attention_forward_workspace_bytes(B, T, H, KV, HS, kCpu),
                           attention_backward_workspace_bytes(B, T, H, KV, HS, kCpu)) / 4 + 1);
        const Workspace w{ws.data(), ws.size() * 4};
        const Floats q = widen(qkv), d = widen(dout);
        attention_forward(out.data(), lse.data(), q.data(), B, T, H, KV, HS, w, kCpu);
        attention_backward(dqkv.data(), d.data(), q.data(), out.data(), lse.data(), B, T, H, KV, HS,
                           w, kCpu);
    }
};

template <class Elem>
float largest(const std::vector<Elem>& x) {
    float m = 0;
    for (const Elem v : x) m = std::fmax(m, std::fabs(to_float(v)));
    return m;
}

// Forward. A score is a sum of HS products, then scaled: off by (HS + 4) eps times the sum of
// magnitudes over sqrt(HS); a weight is off by as much, relatively. out averages v, so with
// normalised weights every term's error is bounded by max |v| times that, plus T additions. Where P
// is rounded to bf16 (tensor cores), 2^-8 max |v| more, and the output's own rounding.
template <class Elem>
void check_forward(Size z, float std = 1) {
    const auto [B, T, H, KV, HS] = z;
    SCOPED_TRACE(str("B ", B, ", T ", T, ", H ", H, ", KV ", KV, ", HS ", HS));
    const Reference<Elem> ref(z, std);
    const Device<Elem> qkv(ref.qkv);
    Device<Elem> out(ref.out.size());
    Device<float> lse(ref.lse.size());
    Scratch ws(attention_forward_workspace_bytes(B, T, H, KV, HS, kCuda));
    attention_forward<Elem>(out, lse, qkv, B, T, H, KV, HS, ws, kCuda);

    const double most = largest(ref.qkv);
    const double score = (HS + 4) * kEps * std * std * 2 * std::sqrt(double(HS));
    const double weight = 2 * score + (T + 16) * kEps;
    expect_close("lse", lse.host(), ref.lse,
                 [&](size_t i) { return weight + 4 * kEps * std::fabs(ref.lse[i]); });
    const double p_rounding = std::is_same_v<Elem, bf16> ? 0x1p-8 : 0;
    expect_close("out", out.host(), ref.out, [&](size_t i) {
        return 2 * (weight + p_rounding) * most + kRounding<Elem> * std::fabs(ref.out[i]);
    });
}

// Backward. dS = P (dout v^T - D): dP and D are sums of HS products of normal numbers, about
// sqrt(HS) large; with P and dS rounded to bf16 each term of dq, dk, dv is off by 2 * 2^-8 of
// itself, and so is the stored out that enters D. Sums of |P| over keys are 1 (dq); over queries
// (dk, dv) they are counted: column[u] = sum_t P[t,u] <= 1 + log T + fluctuations, here at most 16.
template <class Elem>
void check_backward(Size z, float std = 1) {
    const auto [B, T, H, KV, HS] = z;
    SCOPED_TRACE(str("B ", B, ", T ", T, ", H ", H, ", KV ", KV, ", HS ", HS));
    const Reference<Elem> ref(z, std);
    const Device<Elem> qkv(ref.qkv), dout(ref.dout), out(narrow<Elem>(ref.out));
    const Device<float> lse(ref.lse);
    Device<Elem> dqkv(ref.dqkv.size());
    Scratch ws(attention_backward_workspace_bytes(B, T, H, KV, HS, kCuda));
    attention_backward<Elem>(dqkv, dout, qkv, out, lse, B, T, H, KV, HS, ws, kCuda);

    const double rounding = std::is_same_v<Elem, bf16> ? 3 * 0x1p-8 : 0;
    const double relative = rounding + (2 * HS + T + 32) * kEps;
    const double most = largest(ref.qkv), dout_most = largest(ref.dout);
    const double ds = std::sqrt(double(HS)) * dout_most * most;
    const double group = double(H) / KV, columns = std::fmin(T, 16.);
    const int packed = (H + 2 * KV) * HS;
    expect_close("dqkv", dqkv.host(), ref.dqkv, [&, H = H, KV = KV, HS = HS](size_t i) {
        const int c = int(i % packed);
        const double q_or_k = relative * ds * most / std::sqrt(double(HS));
        const double t = c < H * HS ? q_or_k
                         : c < (H + KV) * HS ? group * columns * q_or_k
                                             : group * columns * relative * dout_most;
        return t + kRounding<Elem> * std::fabs(ref.dqkv[i]);
    });
}

}  // namespace

TEST(attention_cuda, tensor_core_forward_agrees_with_the_cpu) {
    for (const Size z : kTensorCoreSizes) check_forward<bf16>(z);
    check_forward<bf16>({1, 100, 1, 1, 64}, 3);  // sharp softmax: the running maximum matters
}
TEST(attention_cuda, tensor_core_backward_agrees_with_the_cpu) {
    for (const Size z : kTensorCoreSizes) check_backward<bf16>(z);
}
TEST(attention_cuda, plain_forward_agrees_with_the_cpu) {
    for (const Size z : kPlainSizes) check_forward<float>(z);
    for (const Size z : {kPlainSizes[1], kPlainSizes[2]}) check_forward<bf16>(z);
    check_forward<float>({1, 50, 1, 1, 16}, 3);
}
TEST(attention_cuda, plain_backward_agrees_with_the_cpu) {
    for (const Size z : kPlainSizes) check_backward<float>(z);
    for (const Size z : {kPlainSizes[1], kPlainSizes[2]}) check_backward<bf16>(z);
}
