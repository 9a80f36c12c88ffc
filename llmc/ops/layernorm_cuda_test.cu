// layernorm.h on CUDA against the CPU.
#include "llmc/ops/layernorm.h"

#include "llmc/ops/norm_cuda_test.cuh"

template <class Elem>
struct layernorm_cuda : testing::Test {};
TYPED_TEST_SUITE(layernorm_cuda, ElemTypes);

TYPED_TEST(layernorm_cuda, forward_agrees_with_the_cpu) {
    for_norm_sizes([](int N, int C, size_t shift) {
        using Elem = TypeParam;
        const size_t n = size_t(N) * C;
        const NormInputs<Elem> in(N, C);
        const Floats x = widen(in.x), w = widen(in.w), b = widen(in.b);
        Floats y(n), mean(N), rstd(N);
        layernorm_forward(y.data(), mean.data(), rstd.data(), x.data(), w.data(), b.data(), N, C,
                          kNormEps, kCpu);
        const Device<Elem> gx(in.x, shift), gw(in.w, shift), gb(in.b, shift);
        Device<Elem> gy(n, shift);
        Device<float> gmean(N), grstd(N);
        layernorm_forward<Elem>(gy, gmean, grstd, gx, gw, gb, N, C, kNormEps, kCuda);

        // The mean is off by chain * max |x|, the variance by as much relative to itself; the
        // output sees both through rstd.
        Floats row_max(N);
        for (size_t i = 0; i < n; i++) row_max[i / C] = std::fmax(row_max[i / C], std::fabs(x[i]));
        expect_close("mean", gmean.host(), mean, [&](size_t i) { return chain(C) * row_max[i]; });
        expect_close("rstd", grstd.host(), rstd, [&](size_t i) {
            return (chain(C) * (1 + row_max[i] * rstd[i]) + 4 * kEps) * rstd[i];
        });
        expect_close("y", gy.host(), y, [&](size_t i) {
            const size_t row = i / C;
            const double xhat = std::fabs(x[i] - mean[row]) * rstd[row], W = std::fabs(w[i % C]);
            const double shift_of_mean = chain(C) * row_max[row] * rstd[row];
            return (shift_of_mean + (shift_of_mean + chain(C)) * xhat) * W +
                   8 * kEps * (xhat * W + std::fabs(b[i % C])) + kRounding<Elem> * std::fabs(y[i]);
        });
    });
}

// The fused op is its parts: the rounded sum, then the norm of that. In place as well.
TYPED_TEST(layernorm_cuda, residual_forward_equals_its_parts) {
    using Elem = TypeParam;
    for (const auto [N, C] : norm_sizes()) {
        SCOPED_TRACE(str("N ", N, ", C ", C));
        const size_t n = size_t(N) * C;
        const NormInputs<Elem> in(N, C);
        Elems<Elem> sum(n);
        for (size_t i = 0; i < n; i++)
            sum[i] = to_elem<Elem>(to_float(in.x[i]) + to_float(in.branch[i]));
        const Device<Elem> gsum(sum), gbranch(in.branch), gw(in.w), gb(in.b);
        Device<Elem> gx(in.x), gy(n), gresidual(n), gy_fused(n);
        Device<float> gmean(N), grstd(N), gmean_fused(N), grstd_fused(N);
        layernorm_forward<Elem>(gy, gmean, grstd, gsum, gw, gb, N, C, kNormEps, kCuda);
        residual_layernorm_forward<Elem>(gresidual, gy_fused, gmean_fused, grstd_fused, gx, gbranch,
                                         gw, gb, N, C, kNormEps, kCuda);
        EXPECT_TRUE(same_bits(gresidual.host(), sum));
        EXPECT_TRUE(same_bits(gy_fused.host(), gy.host()));
        EXPECT_TRUE(same_bits(gmean_fused.host(), gmean.host()));
        EXPECT_TRUE(same_bits(grstd_fused.host(), grstd.host()));
        residual_layernorm_forward<Elem>(gx, gy_fused, gmean_fused, grstd_fused, gx, gbranch, gw,
                                         gb, N, C, kNormEps, kCuda);
        EXPECT_TRUE(same_bits(gx.host(), sum)) << "in place";
    }
}

TYPED_TEST(layernorm_cuda, backward_agrees_with_the_cpu) {
    for_norm_sizes([](int N, int C, size_t shift) {
        using Elem = TypeParam;
        const size_t n = size_t(N) * C;
        const NormInputs<Elem> in(N, C);
        const Floats x = widen(in.x), w = widen(in.w), b = widen(in.b), dy = widen(in.dy);
        Floats y(n), mean(N), rstd(N);
        layernorm_forward(y.data(), mean.data(), rstd.data(), x.data(), w.data(), b.data(), N, C,
                          kNormEps, kCpu);
        // Gradients of parameters are added to what is there.
        const Floats dw0 = random_elems<float>(C, "dw"), db0 = random_elems<float>(C, "db");
        Floats dx(n), dw = dw0, db = db0;
        Floats cpu_ws(layernorm_backward_workspace_bytes(N, C, kCpu) / sizeof(float) + 1);
        layernorm_backward(dx.data(), dw.data(), db.data(), dy.data(), x.data(), w.data(),
                           mean.data(), rstd.data(), N, C,
                           {cpu_ws.data(), cpu_ws.size() * sizeof(float)}, kCpu);
        const Device<Elem> gx(in.x, shift), gw(in.w, shift), gdy(in.dy, shift);
        const Device<float> gmean(mean), grstd(rstd);
        Device<Elem> gdx(n, shift);
        Device<float> gdw(dw0), gdb(db0);
        Scratch ws(layernorm_backward_workspace_bytes(N, C, kCuda));
        layernorm_backward<Elem>(gdx, gdw, gdb, gdy, gx, gw, gmean, grstd, N, C, ws, kCuda);

        const auto xhat = [&](size_t i) { return (x[i] - mean[i / C]) * rstd[i / C]; };
        std::vector<double> g_sum(N), gx_sum(N);  // means of magnitudes in a row
        for (size_t i = 0; i < n; i++) {
            const double g = std::fabs(double(dy[i]) * w[i % C]) / C;
            g_sum[i / C] += g;
            gx_sum[i / C] += g * std::fabs(xhat(i));
        }
        expect_close("dx", gdx.host(), dx, [&](size_t i) {
            const size_t row = i / C;
            const double own = std::fabs(double(dy[i]) * w[i % C]), h = std::fabs(xhat(i));
            const double sums = g_sum[row] + h * gx_sum[row];
            return (8 * kEps * own + (chain(C) + 8 * kEps) * sums) * rstd[row] +
                   kRounding<Elem> * std::fabs(dx[i]);
        });
        ColumnSums dw_sums(dw0), db_sums(db0);
        for (size_t i = 0; i < n; i++) {
            dw_sums.add(i % C, dy[i] * ((double(x[i]) - mean[i / C]) * rstd[i / C]));
            db_sums.add(i % C, dy[i]);
        }
        dw_sums.expect("dw", gdw.host(), N);
        db_sums.expect("db", gdb.host(), N);
    });
}

// The fused backward adds the same dx to what is there, and the same dw and db.
TYPED_TEST(layernorm_cuda, residual_backward_adds) {
    for_norm_sizes([](int N, int C, size_t shift) {
        using Elem = TypeParam;
        const size_t n = size_t(N) * C;
        const NormInputs<Elem> in(N, C);
        const Floats before = random_elems<float>(C, "dw");
        const Device<Elem> gx(in.x, shift), gw(in.w, shift), gb(in.b, shift), gdy(in.dy, shift);
        Device<Elem> gy(n, shift), gdx(n, shift), gdres(in.branch, shift);
        Device<float> gmean(N), grstd(N), gdw(before), gdb(before), gdw2(before), gdb2(before);
        Scratch ws(layernorm_backward_workspace_bytes(N, C, kCuda));
        layernorm_forward<Elem>(gy, gmean, grstd, gx, gw, gb, N, C, kNormEps, kCuda);
        layernorm_backward<Elem>(gdx, gdw, gdb, gdy, gx, gw, gmean, grstd, N, C, ws, kCuda);
        residual_layernorm_backward<Elem>(gdres, gdw2, gdb2, gdy, gx, gw, gmean, grstd, N, C, ws,
                                          kCuda);
        EXPECT_TRUE(same_bits(gdw2.host(), gdw.host()));
        EXPECT_TRUE(same_bits(gdb2.host(), gdb.host()));
        expect_added(gdres.host(), in.branch, gdx.host());
    });
}
