// attention.h on CUDA against the CPU: tensor-core kernels and plain ones, ragged T, grouped heads;
// on a GPU also cuDNN's.
#include "llmc/ops/attention.h"

#include "llmc/ops/attention_cudnn.h"
#include "llmc/ops/cuda_test.cuh"
#include "llmc/ops/cudnn_plan.h"

namespace {

struct Size {
    int B, T, H, KV, HS;
};
// bf16 with head size 64 or 128 runs on tensor cores, everything else on plain arithmetic. T below,
// at and beyond the tiles of 32, 64 and 128.
constexpr Size kTensorCoreSizes[] = {{1, 1, 1, 1, 64},   {2, 64, 2, 2, 64}, {1, 129, 2, 1, 64},
                                     {1, 200, 1, 1, 64}, {1, 63, 4, 2, 64}, {1, 65, 2, 2, 128},
                                     {1, 150, 2, 1, 128}};
constexpr Size kPlainSizes[] = {{1, 1, 1, 1, 8},   {2, 33, 2, 2, 16},  {1, 70, 4, 2, 5},
                                {1, 40, 2, 1, 64}, {1, 37, 1, 1, 128}, {1, 35, 2, 2, 200},
                                {1, 33, 1, 1, 256}};

// What the CPU computes from the same (rounded) inputs, and how far a correct kernel may be off.
//
// One score is a sum of HS products and a scaling: off by e_s = (HS + 4) eps times its magnitudes;
// its weight P by e_p = 2 e_s + 16 eps of itself (the log-sum-exp moves with the scores), and by
// 2^-8 more where it is rounded to bf16 as an operand of tensor cores. Sums over T add T eps.
//   out: sum_u P |v| times that.   dv: sum_t P |dout| times that.
//   dS = P (dP - D): dP = dout . v is off by HS eps of its magnitudes; D = dout . out likewise, and
//   by the rounding of the stored out. dS inherits e_p, and is rounded to bf16 itself.
//   dq, dk: sums of those errors times |k|, |q|, times the scale.
// cuDNN rounds each query head's part of a shared dk, dv to bf16 before it adds them up.
template <class Elem>
struct Reference {
    Elems<Elem> qkv, dout;
    Floats out, lse, dqkv;
    std::vector<double> lse_bound, out_bound, dqkv_bound;

    Reference(Size z, float std)
        : qkv(random_elems<Elem>(size_t(z.B) * z.T * (z.H + 2 * z.KV) * z.HS, "qkv", std)),
          dout(random_elems<Elem>(size_t(z.B) * z.T * z.H * z.HS, "dout")),
          out(dout.size()),
          lse(size_t(z.B) * z.H * z.T),
          dqkv(qkv.size()),
          lse_bound(lse.size()),
          out_bound(out.size()),
          dqkv_bound(qkv.size()) {
        const auto [B, T, H, KV, HS] = z;
        Floats ws(std::max(attention_forward_workspace_bytes(B, T, H, KV, HS, kCpu),
                           attention_backward_workspace_bytes(B, T, H, KV, HS, kCpu)) /
                      4 +
                  1);
        const Workspace w{ws.data(), ws.size() * 4};
        const Floats q = widen(qkv), d = widen(dout);
        attention_forward(out.data(), lse.data(), q.data(), B, T, H, KV, HS, w, kCpu);
        attention_backward(dqkv.data(), d.data(), q.data(), out.data(), lse.data(), B, T, H, KV, HS,
                           w, kCpu);
        for (int b = 0; b < B; b++)
            for (int h = 0; h < H; h++) add_bounds(z, b, h, q, d);
        for (size_t i = 0; i < out.size(); i++) out_bound[i] += kRounding<Elem> * std::fabs(out[i]);
        for (size_t i = 0; i < dqkv.size(); i++)
            dqkv_bound[i] += kRounding<Elem> * std::fabs(dqkv[i]);
    }

    void add_bounds(Size z, int b, int h, const Floats& q, const Floats& d) {
        const auto [B, T, H, KV, HS] = z;
        const bool tensor_cores = std::is_same_v<Elem, bf16> && (HS == 64 || HS == 128);
        const double operand = tensor_cores ? 0x1p-8 : 0, scale = 1 / std::sqrt(double(HS));
        const double part = attention_choice.cudnn && H > KV ? kRounding<Elem> : 0;
        const int row = (H + 2 * KV) * HS, kv = h / (H / KV);
        const auto at = [&, HS = HS, T = T](int t, int head) {
            return size_t(b * T + t) * row + head * HS;
        };
        for (int t = 0; t < T; t++) {
            const size_t qt = at(t, h), ot = (size_t(b * T + t) * H + h) * HS;
            double D = 0, D_size = 0;
            for (int i = 0; i < HS; i++) {
                D += double(d[ot + i]) * out[ot + i];
                D_size += std::fabs(double(d[ot + i]) * out[ot + i]);
            }
            const double e_D = (HS * kEps + kRounding<Elem>)*D_size;
            double& e_lse = lse_bound[(size_t(b) * H + h) * T + t];
            e_lse = (T + 16) * kEps + 4 * kEps * std::fabs(lse[(size_t(b) * H + h) * T + t]);
            for (int u = 0; u <= t; u++) {
                const size_t ku = at(u, H + kv), vu = at(u, H + KV + kv);
                double S = 0, S_size = 0, dP = 0, dP_size = 0;
                for (int i = 0; i < HS; i++) {
                    S += double(q[qt + i]) * q[ku + i] * scale;
                    S_size += std::fabs(double(q[qt + i]) * q[ku + i]) * scale;
                    dP += double(d[ot + i]) * q[vu + i];
                    dP_size += std::fabs(double(d[ot + i]) * q[vu + i]);
                }
                const double P = std::exp(S - lse[(size_t(b) * H + h) * T + t]);
                const double e_s = (HS + 4) * kEps * S_size;
                const double e_p = 2 * e_s + (T + 16) * kEps;
                const double e_dS = P * (e_p * std::fabs(dP - D) + HS * kEps * dP_size + e_D) +
                                    operand * P * std::fabs(dP - D);
                e_lse += P * e_s;
                for (int i = 0; i < HS; i++) {
                    out_bound[ot + i] += P * (e_p + operand) * std::fabs(q[vu + i]);
                    dqkv_bound[qt + i] += e_dS * scale * std::fabs(q[ku + i]);
                    dqkv_bound[ku + i] +=
                        (e_dS + part * P * std::fabs(dP - D)) * scale * std::fabs(q[qt + i]);
                    dqkv_bound[vu + i] += P * (e_p + operand + part) * std::fabs(d[ot + i]);
                }
            }
        }
    }
};

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
    expect_close("lse", lse.host(), ref.lse, [&](size_t i) { return ref.lse_bound[i]; });
    expect_close("out", out.host(), ref.out, [&](size_t i) { return ref.out_bound[i]; });
}

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
    expect_close("dqkv", dqkv.host(), ref.dqkv, [&](size_t i) { return ref.dqkv_bound[i]; });
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
// What cuDNN's kernels compute. That there are such kernels is proven without a GPU, in
// attention_cudnn_test.cpp.
TEST(attention_cuda, cudnn_agrees_with_the_cpu) {
    if (!cudnn::built()) GTEST_SKIP() << "a build without cuDNN's headers";
    try {
        cudnn::load();
    } catch (const Error& e) {
        GTEST_SKIP() << e.what();
    }
    for (const bool deterministic : {true, false}) {
        attention_choice = {true, deterministic};
        for (const Size z : kTensorCoreSizes) {
            check_forward<bf16>(z);
            check_backward<bf16>(z);
        }
        check_forward<bf16>({1, 100, 1, 1, 64}, 3);
    }
    attention_choice = {};
}
// Many tiles of both kinds, several heads.
TEST(attention_cuda, agrees_with_the_cpu_over_many_tiles) {
    if (!std::getenv("TEST_DEEP")) GTEST_SKIP() << "make test-deep runs it";
    for (const Size z : {Size{2, 1000, 3, 3, 64}, Size{1, 777, 4, 2, 128}}) {
        check_forward<bf16>(z);
        check_backward<bf16>(z);
    }
    check_forward<float>({1, 500, 3, 1, 64});
    check_backward<float>({1, 500, 3, 1, 64});
}
