// qknorm.h on CUDA against the CPU.
#include "llmc/ops/qknorm.h"

#include "llmc/ops/norm_cuda_test.cuh"

template <class Elem>
struct qknorm_cuda : testing::Test {};
TYPED_TEST_SUITE(qknorm_cuda, ElemTypes);

namespace {

// Inputs, and what the CPU's forward makes of them.
template <class Elem>
struct Case {
    int N, H, KV, HS, heads = H + KV, row = (H + 2 * KV) * HS;
    size_t shift, n = size_t(N) * row, kept = size_t(N) * heads * HS;
    Elems<Elem> xe = random_elems<Elem>(n, "x", 2), qwe = random_elems<Elem>(HS, "qw"),
                kwe = random_elems<Elem>(HS, "kw"), dye = random_elems<Elem>(n, "dy");
    Floats qw = widen(qwe), kw = widen(kwe), dy = widen(dye), y = widen(xe), qk = Floats(kept),
           rstd = Floats(size_t(N) * heads);

    Case(int N, int H, int KV, int HS, size_t shift) : N(N), H(H), KV(KV), HS(HS), shift(shift) {
        qknorm_forward(y.data(), qk.data(), rstd.data(), qw.data(), kw.data(), N, H, KV, HS,
                       kNormEps, kCpu);
    }
};

// Odd heads, ragged packets, Qwen's; more heads than all blocks take in one round.
template <class Elem, class Body>
void for_cases(Body body) {
    struct Size {
        int N, H, KV, HS;
    };
    for (const auto [N, H, KV, HS] :
         {Size{1, 1, 1, 2}, {5, 3, 1, 6}, {7, 4, 2, 128}, {3, 2, 1, 264}, {900, 4, 2, 10}})
        for (size_t shift : {0, 1}) {
            SCOPED_TRACE(
                str("N ", N, ", heads ", H, " and ", KV, " of ", HS, ", shifted by ", shift));
            body(Case<Elem>(N, H, KV, HS, shift));
        }
}

// As in rmsnorm_cuda_test.cu, head by head; sums over rows in double: those of dqw, then of dkw.
struct Gradients {
    std::vector<double> sum, terms, bound;  // bound: of the error of dx
    template <class Elem>
    Gradients(const Case<Elem>& c, const Floats& before, const Floats& dx)
        : sum(before.begin(), before.end()), bound(c.n) {
        const int HS = c.HS;
        for (float x : before) terms.push_back(std::fabs(x));
        for (size_t i = 0; i < size_t(c.N) * c.heads; i++) {
            const int h = int(i % c.heads), to = h < c.H ? 0 : HS;
            const Floats& w = h < c.H ? c.qw : c.kw;
            const size_t at = i / c.heads * c.row + size_t(h) * HS;
            const float *x = &c.qk[i * HS], *dy = &c.dy[at], r = c.rstd[i];
            double gx = 0;
            for (int k = 0; k < HS; k++) gx += std::fabs(double(dy[k]) * w[k] * x[k]) * r / HS;
            for (int k = 0; k < HS; k++) {
                const double xhat = double(x[k]) * r, term = dy[k] * xhat;
                sum[to + k] += term;
                terms[to + k] += std::fabs(term);
                bound[at + k] = (8 * kEps * std::fabs(double(dy[k]) * w[k]) +
                                 (chain(HS) + 8 * kEps) * std::fabs(xhat) * gx) *
                                    r +
                                kRounding<Elem> * std::fabs(dx[at + k]);
            }
        }
    }
};

}  // namespace

TYPED_TEST(qknorm_cuda, forward_agrees_with_the_cpu) {
    using Elem = TypeParam;
    for_cases<Elem>([](const Case<Elem>& c) {
        const Device<Elem> gqw(c.qwe, c.shift), gkw(c.kwe, c.shift);
        Device<Elem> gy(c.xe, c.shift), gqk(c.kept, c.shift);
        Device<float> grstd(c.rstd.size());
        qknorm_forward<Elem>(gy, gqk, grstd, gqw, gkw, c.N, c.H, c.KV, c.HS, kNormEps, kCuda);
        EXPECT_TRUE(same_bits(gqk.host(), narrow<Elem>(c.qk)));
        expect_close("rstd", grstd.host(), c.rstd,
                     [&](size_t i) { return (chain(c.HS) + 4 * kEps) * c.rstd[i]; });
        // Values stay bit for bit: they are compared with themselves.
        expect_close("y", gy.host(), c.y, [&](size_t i) {
            const bool value = int(i % c.row) >= c.heads * c.HS;
            return value ? 0 : (chain(c.HS) + 8 * kEps + kRounding<Elem>)*std::fabs(c.y[i]);
        });
    });
}

TYPED_TEST(qknorm_cuda, backward_agrees_with_the_cpu) {
    using Elem = TypeParam;
    for_cases<Elem>([](const Case<Elem>& c) {
        const int N = c.N, H = c.H, KV = c.KV, HS = c.HS;
        const Floats dq0 = random_elems<float>(HS, "dqw"), dk0 = random_elems<float>(HS, "dkw");
        Floats dx = c.dy, dqw = dq0, dkw = dk0;
        Floats cpu_ws(qknorm_backward_workspace_bytes(N, H, KV, HS, kCpu) / sizeof(float));
        qknorm_backward(dx.data(), dqw.data(), dkw.data(), c.qk.data(), c.qw.data(), c.kw.data(),
                        c.rstd.data(), N, H, KV, HS, {cpu_ws.data(), cpu_ws.size() * sizeof(float)},
                        kCpu);
        const Device<Elem> gqk(narrow<Elem>(c.qk), c.shift), gqw(c.qwe, c.shift),
            gkw(c.kwe, c.shift);
        const Device<float> grstd(c.rstd);
        Device<Elem> gdx(c.dye, c.shift);
        Device<float> gdqw(dq0), gdkw(dk0);
        Scratch ws(qknorm_backward_workspace_bytes(N, H, KV, HS, kCuda));
        qknorm_backward<Elem>(gdx, gdqw, gdkw, gqk, gqw, gkw, grstd, N, H, KV, HS, ws, kCuda);

        Floats before = dq0;
        before.insert(before.end(), dk0.begin(), dk0.end());
        const Gradients want(c, before, dx);
        expect_close("dx", gdx.host(), dx, [&](size_t i) { return want.bound[i]; });
        // A warp's heads, eight warps, 64 partial sums of a thread, eight of a column.
        const double longest = double(N) * c.heads / (512 * 8) + 1 + 8 + 64 + 8 + 8;
        Floats found = gdqw.host();
        const Floats keys = gdkw.host();
        found.insert(found.end(), keys.begin(), keys.end());
        expect_close("dqw, dkw", found, Floats(want.sum.begin(), want.sum.end()), [&](size_t i) {
            return longest * kEps * want.terms[i] + kEps * std::fabs(want.sum[i]);
        });
    });
}
