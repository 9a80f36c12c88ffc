// rmsnorm.h on CUDA against the CPU.
#include "llmc/ops/rmsnorm.h"

#include "llmc/ops/norm_cuda_test.cuh"

template <class Elem>
struct rmsnorm_cuda : testing::Test {};
TYPED_TEST_SUITE(rmsnorm_cuda, ElemTypes);

TYPED_TEST(rmsnorm_cuda, forward_agrees_with_the_cpu) {
    for_norm_sizes([](int N, int C, size_t shift) {
        using Elem = TypeParam;
        const size_t n = size_t(N) * C;
        const NormInputs<Elem> in(N, C);
        const Floats x = widen(in.x), w = widen(in.w);
        Floats y(n), rstd(N);
        rmsnorm_forward(y.data(), rstd.data(), x.data(), w.data(), N, C, kNormEps, kCpu);
        const Device<Elem> gx(in.x, shift), gw(in.w, shift);
        Device<Elem> gy(n, shift);
        Device<float> grstd(N);
        rmsnorm_forward<Elem>(gy, grstd, gx, gw, N, C, kNormEps, kCuda);
        // All terms of the sum are positive: its relative error is the chain's, rstd's half.
        expect_close("rstd", grstd.host(), rstd,
                     [&](size_t i) { return (chain(C) + 4 * kEps) * rstd[i]; });
        expect_close("y", gy.host(), y, [&](size_t i) {
            return (chain(C) + 8 * kEps + kRounding<Elem>)*std::fabs(y[i]);
        });
    });
}

TYPED_TEST(rmsnorm_cuda, backward_agrees_with_the_cpu) {
    for_norm_sizes([](int N, int C, size_t shift) {
        using Elem = TypeParam;
        const size_t n = size_t(N) * C;
        const NormInputs<Elem> in(N, C);
        const Floats x = widen(in.x), w = widen(in.w), dy = widen(in.dy);
        Floats y(n), rstd(N);
        rmsnorm_forward(y.data(), rstd.data(), x.data(), w.data(), N, C, kNormEps, kCpu);
        const Floats dw0 = random_elems<float>(C, "dw");
        Floats dx(n), dw = dw0;
        Floats cpu_ws(rmsnorm_backward_workspace_bytes(N, C, kCpu) / sizeof(float) + 1);
        rmsnorm_backward(dx.data(), dw.data(), dy.data(), x.data(), w.data(), rstd.data(), N, C,
                         {cpu_ws.data(), cpu_ws.size() * sizeof(float)}, kCpu);
        const Device<Elem> gx(in.x, shift), gw(in.w, shift), gdy(in.dy, shift);
        const Device<float> grstd(rstd);
        Device<Elem> gdx(n, shift);
        Device<float> gdw(dw0);
        Scratch ws(rmsnorm_backward_workspace_bytes(N, C, kCuda));
        rmsnorm_backward<Elem>(gdx, gdw, gdy, gx, gw, grstd, N, C, ws, kCuda);

        std::vector<double> gx_sum(N);  // means of magnitudes in a row
        for (size_t i = 0; i < n; i++)
            gx_sum[i / C] += std::fabs(double(dy[i]) * w[i % C] * x[i]) * rstd[i / C] / C;
        expect_close("dx", gdx.host(), dx, [&](size_t i) {
            const size_t row = i / C;
            const double own = std::fabs(double(dy[i]) * w[i % C]);
            const double xhat = std::fabs(x[i]) * rstd[row];
            return (8 * kEps * own + (chain(C) + 8 * kEps) * xhat * gx_sum[row]) * rstd[row] +
                   kRounding<Elem> * std::fabs(dx[i]);
        });
        ColumnSums sums(dw0);
        for (size_t i = 0; i < n; i++) sums.add(i % C, double(dy[i]) * x[i] * rstd[i / C]);
        sums.expect("dw", gdw.host(), N);
    });
}

// Fused: the rounded sum, then the norm of that; backward adds the same dx, and the same dw.
TYPED_TEST(rmsnorm_cuda, with_the_residual_it_equals_its_parts) {
    for_norm_sizes([](int N, int C, size_t shift) {
        using Elem = TypeParam;
        const size_t n = size_t(N) * C;
        const NormInputs<Elem> in(N, C);
        Elems<Elem> total(n);
        for (size_t i = 0; i < n; i++)
            total[i] = to_elem<Elem>(to_float(in.x[i]) + to_float(in.branch[i]));
        const Device<Elem> gtotal(total, shift), gbranch(in.branch, shift), gw(in.w, shift);
        Device<Elem> gresidual(in.x, shift), gy(n, shift), gy_fused(n, shift);
        Device<float> grstd(N), grstd_fused(N);
        rmsnorm_forward<Elem>(gy, grstd, gtotal, gw, N, C, kNormEps, kCuda);
        residual_rmsnorm_forward<Elem>(gresidual, gy_fused, grstd_fused, gresidual, gbranch, gw, N,
                                       C, kNormEps, kCuda);
        EXPECT_TRUE(same_bits(gresidual.host(), total));
        EXPECT_TRUE(same_bits(gy_fused.host(), gy.host()));
        EXPECT_TRUE(same_bits(grstd_fused.host(), grstd.host()));

        const Floats dw0 = random_elems<float>(C, "dw");
        const Device<Elem> gdy(in.dy, shift);
        Device<Elem> gdx(n, shift), gdres(in.dy, shift);
        Device<float> gdw(dw0), gdw_fused(dw0);
        Scratch ws(rmsnorm_backward_workspace_bytes(N, C, kCuda));
        rmsnorm_backward<Elem>(gdx, gdw, gdy, gtotal, gw, grstd, N, C, ws, kCuda);
        residual_rmsnorm_backward<Elem>(gdres, gdw_fused, gdy, gtotal, gw, grstd, N, C, ws, kCuda);
        EXPECT_TRUE(same_bits(gdw_fused.host(), gdw.host()));
        expect_added(gdres.host(), in.dy, gdx.host());
    });
}
