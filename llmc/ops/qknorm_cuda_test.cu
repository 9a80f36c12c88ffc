// qknorm.h on CUDA against the CPU.
#include "llmc/ops/qknorm.h"

#include "llmc/ops/norm_cuda_test.cuh"

template <class Elem>
struct qknorm_cuda : testing::Test {};
TYPED_TEST_SUITE(qknorm_cuda, ElemTypes);

TYPED_TEST(qknorm_cuda, agrees_with_the_cpu) {
    using Elem = TypeParam;
    struct Size {
        int N, H, KV, HS;
    };
    // Odd heads, ragged packets, Qwen's; more heads than all blocks take in one round.
    for (const auto [N, H, KV, HS] :
         {Size{1, 1, 1, 2}, {5, 3, 1, 6}, {7, 4, 2, 128}, {3, 2, 1, 264}, {900, 4, 2, 10}})
        for (size_t shift : {0, 1}) {
            SCOPED_TRACE(
                str("N ", N, ", heads ", H, " and ", KV, " of ", HS, ", shifted by ", shift));
            const int heads = H + KV, row = (H + 2 * KV) * HS;
            const size_t n = size_t(N) * row, kept = size_t(N) * heads * HS;
            const auto xe = random_elems<Elem>(n, "x", 2), qwe = random_elems<Elem>(HS, "qw"),
                       kwe = random_elems<Elem>(HS, "kw"), dye = random_elems<Elem>(n, "dy");
            const Floats qw = widen(qwe), kw = widen(kwe), dy = widen(dye);
            Floats y = widen(xe), qk(kept), rstd(size_t(N) * heads);
            qknorm_forward(y.data(), qk.data(), rstd.data(), qw.data(), kw.data(), N, H, KV, HS,
                           kNormEps, kCpu);
            const Device<Elem> gqw(qwe, shift), gkw(kwe, shift);
            Device<Elem> gy(xe, shift), gqk(kept, shift);
            Device<float> grstd(size_t(N) * heads);
            qknorm_forward<Elem>(gy, gqk, grstd, gqw, gkw, N, H, KV, HS, kNormEps, kCuda);
            EXPECT_TRUE(same_bits(gqk.host(), narrow<Elem>(qk)));
            expect_close("rstd", grstd.host(), rstd,
                         [&, HS = HS](size_t i) { return (chain(HS) + 4 * kEps) * rstd[i]; });
            // Values stay bit for bit: they are compared with themselves.
            expect_close("y", gy.host(), y, [&, HS = HS, heads](size_t i) {
                const bool value = int(i % row) >= heads * HS;
                return value ? 0 : (chain(HS) + 8 * kEps + kRounding<Elem>)*std::fabs(y[i]);
            });

            const Floats dq0 = random_elems<float>(HS, "dqw"), dk0 = random_elems<float>(HS, "dkw");
            Floats dx = dy, dqw = dq0, dkw = dk0;
            Floats cpu_ws(qknorm_backward_workspace_bytes(N, H, KV, HS, kCpu) / sizeof(float));
            qknorm_backward(dx.data(), dqw.data(), dkw.data(), qk.data(), qw.data(), kw.data(),
                            rstd.data(), N, H, KV, HS,
                            {cpu_ws.data(), cpu_ws.size() * sizeof(float)}, kCpu);
            const Device<float> cpu_rstd(rstd);
            Device<Elem> gdx(dye, shift);
            Device<float> gdqw(dq0), gdkw(dk0);
            Scratch ws(qknorm_backward_workspace_bytes(N, H, KV, HS, kCuda));
            qknorm_backward<Elem>(gdx, gdqw, gdkw, gqk, gqw, gkw, cpu_rstd, N, H, KV, HS, ws,
                                  kCuda);

            // As in rmsnorm_cuda_test.cu, head by head; sums over rows against double.
            std::vector<double> sum(2 * HS), terms(2 * HS), bound(n);
            for (int c = 0; c < HS; c++) {
                sum[c] = dq0[c], sum[HS + c] = dk0[c];
                terms[c] = std::fabs(dq0[c]), terms[HS + c] = std::fabs(dk0[c]);
            }
            for (size_t i = 0; i < size_t(N) * heads; i++) {
                const int h = int(i % heads);
                const Floats& w = h < H ? qw : kw;
                const size_t at = i / heads * row + size_t(h) * HS;
                double gx = 0;
                for (int c = 0; c < HS; c++)
                    gx += std::fabs(double(dy[at + c]) * w[c] * qk[i * HS + c]) * rstd[i] / HS;
                for (int c = 0; c < HS; c++) {
                    const double xhat = double(qk[i * HS + c]) * rstd[i], term = dy[at + c] * xhat;
                    sum[(h < H ? 0 : HS) + c] += term;
                    terms[(h < H ? 0 : HS) + c] += std::fabs(term);
                    bound[at + c] = (8 * kEps * std::fabs(double(dy[at + c]) * w[c]) +
                                     (chain(HS) + 8 * kEps) * std::fabs(xhat) * gx) *
                                        rstd[i] +
                                    kRounding<Elem> * std::fabs(dx[at + c]);
                }
            }
            expect_close("dx", gdx.host(), dx, [&](size_t i) { return bound[i]; });
            // A warp's heads, eight warps, 64 partial sums of a thread, eight of a column.
            const double longest = double(N) * heads / (512 * 8) + 1 + 8 + 64 + 8 + 8;
            const Floats want(sum.begin(), sum.end());
            expect_close(
                "dqw", gdqw.host(), Floats(want.begin(), want.begin() + HS),
                [&](size_t c) { return longest * kEps * terms[c] + kEps * std::fabs(sum[c]); });
            expect_close("dkw", gdkw.host(), Floats(want.begin() + HS, want.end()),
                         [&, HS = HS](size_t c) {
                             return longest * kEps * terms[HS + c] + kEps * std::fabs(sum[HS + c]);
                         });
        }
}
