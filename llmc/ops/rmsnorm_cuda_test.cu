// rmsnorm.h on CUDA against the CPU.
#include "llmc/ops/rmsnorm.h"

#include "llmc/ops/norm_cuda_test.cuh"

template <class Elem>
struct rmsnorm_cuda : testing::Test {};
TYPED_TEST_SUITE(rmsnorm_cuda, ElemTypes);

TYPED_TEST(rmsnorm_cuda, agrees_with_the_cpu) {
    using Elem = TypeParam;
    for (const auto [N, C] : norm_sizes())
        for (size_t shift : {0, 1}) {
            SCOPED_TRACE(str("N ", N, ", C ", C, ", shifted by ", shift));
            const size_t n = size_t(N) * C;
            const auto xe = random_elems<Elem>(n, "x", 2), we = random_elems<Elem>(C, "w"),
                       dye = random_elems<Elem>(n, "dy");
            const Floats x = widen(xe), w = widen(we), dy = widen(dye);
            Floats y(n), rstd(N);
            rmsnorm_forward(y.data(), rstd.data(), x.data(), w.data(), N, C, kNormEps, kCpu);
            const Device<Elem> gx(xe, shift), gw(we, shift), gdy(dye, shift);
            Device<Elem> gy(n, shift);
            Device<float> grstd(N);
            rmsnorm_forward<Elem>(gy, grstd, gx, gw, N, C, kNormEps, kCuda);
            // All terms of the sum are positive: its relative error is the chain's, rstd's half.
            expect_close("rstd", grstd.host(), rstd,
                         [&, C = C](size_t i) { return (chain(C) + 4 * kEps) * rstd[i]; });
            expect_close("y", gy.host(), y, [&, C = C](size_t i) {
                return (chain(C) + 8 * kEps + kRounding<Elem>)*std::fabs(y[i]);
            });

            const Floats dw0 = random_elems<float>(C, "dw");
            Floats dx(n), dw = dw0;
            Floats cpu_ws(rmsnorm_backward_workspace_bytes(N, C, kCpu) / sizeof(float) + 1);
            rmsnorm_backward(dx.data(), dw.data(), dy.data(), x.data(), w.data(), rstd.data(), N, C,
                             {cpu_ws.data(), cpu_ws.size() * sizeof(float)}, kCpu);
            const Device<float> cpu_rstd(rstd);
            Device<Elem> gdx(n, shift);
            Device<float> gdw(dw0);
            Scratch ws(rmsnorm_backward_workspace_bytes(N, C, kCuda));
            rmsnorm_backward<Elem>(gdx, gdw, gdy, gx, gw, cpu_rstd, N, C, ws, kCuda);
            std::vector<double> gx_sum(N);  // means of magnitudes in a row
            for (size_t i = 0; i < n; i++)
                gx_sum[i / C] += std::fabs(double(dy[i]) * w[i % C] * x[i]) * rstd[i / C] / C;
            expect_close("dx", gdx.host(), dx, [&, C = C](size_t i) {
                const size_t row = i / C;
                const double own = std::fabs(double(dy[i]) * w[i % C]);
                const double xhat = std::fabs(x[i]) * rstd[row];
                return (8 * kEps * own + (chain(C) + 8 * kEps) * xhat * gx_sum[row]) * rstd[row] +
                       kRounding<Elem> * std::fabs(dx[i]);
            });
            // Against double, because the order of the CPU's sums is its own: a block's rows, the
            // 16 partial sums of a thread, the 8 of a column, and a few roundings.
            std::vector<double> sum(dw0.begin(), dw0.end());
            Floats terms(dw0);
            for (int c = 0; c < C; c++) terms[c] = std::fabs(dw0[c]);
            for (size_t i = 0; i < n; i++) {
                const double term = double(dy[i]) * x[i] * rstd[i / C];
                sum[i % C] += term;
                terms[i % C] += float(std::fabs(term));
            }
            expect_close("dw", gdw.host(), Floats(sum.begin(), sum.end()), [&, N = N](size_t c) {
                return (16 * (N / 2048 + 1) + 16 + 8 + 8) * kEps * terms[c];
            });

            // Fused: the rounded sum, then the norm of that; backward adds the same dx.
            const auto branch = random_elems<Elem>(n, "branch");
            Elems<Elem> total(n);
            for (size_t i = 0; i < n; i++)
                total[i] = to_elem<Elem>(to_float(xe[i]) + to_float(branch[i]));
            const Device<Elem> gtotal(total, shift), gbranch(branch, shift);
            Device<Elem> gresidual(xe, shift), gy2(n, shift), gdres(dye, shift);
            Device<float> grstd2(N), gdw2(dw0);
            rmsnorm_forward<Elem>(gy, grstd, gtotal, gw, N, C, kNormEps, kCuda);
            residual_rmsnorm_forward<Elem>(gresidual, gy2, grstd2, gresidual, gbranch, gw, N, C,
                                           kNormEps, kCuda);
            EXPECT_TRUE(same_bits(gresidual.host(), total));
            EXPECT_TRUE(same_bits(gy2.host(), gy.host()));
            EXPECT_TRUE(same_bits(grstd2.host(), grstd.host()));
            residual_rmsnorm_backward<Elem>(gdres, gdw2, gdy, gx, gw, cpu_rstd, N, C, ws, kCuda);
            EXPECT_TRUE(same_bits(gdw2.host(), gdw.host()));
            const Floats alone = widen(gdx.host());
            Floats expected(n);
            for (size_t i = 0; i < n; i++) expected[i] = dy[i] + alone[i];
            expect_close("dresidual", gdres.host(), expected, [&](size_t i) {
                return kRounding<Elem> * (std::fabs(alone[i]) + std::fabs(expected[i])) + kEps;
            });
        }
}
