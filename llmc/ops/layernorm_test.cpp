#include "llmc/ops/layernorm.h"

#include "llmc/ops/op_test.h"

namespace {
constexpr float eps = 1e-5f;

struct Forward {
    Buffer y, mean, rstd;
    Forward(const Buffer& x, const Buffer& w, const Buffer& b, int N, int C)
        : y(N * C), mean(N), rstd(N) {
        layernorm_forward(y, mean, rstd, x, w, b, N, C, eps, CpuStream{});
    }
};

// Adds to dw and db; returns dx.
Buffer backward(Buffer& dw, Buffer& db, const Buffer& dy, const Buffer& x, const Buffer& w,
                const Forward& f, int N, int C) {
    Buffer dx(N * C, kNan);
    Scratch ws(layernorm_backward_workspace_bytes(N, C, CpuStream{}));
    layernorm_backward(dx, dw, db, dy, x, w, f.mean, f.rstd, N, C, ws, CpuStream{});
    return dx;
}
}  // namespace

TEST(layernorm, forward_against_double_even_with_a_large_mean) {
    for (int C : {1, 2, 7, 16, 33, 768}) {
        for (float mean : {0.f, 1000.f}) {
            const int N = 3;
            const Buffer x = random_buffer(N * C, "x", 1.f, mean), w = random_buffer(C, "w");
            const Buffer b = random_buffer(C, "b");
            const Forward f(x, w, b, N, C);
            for (int n = 0; n < N; n++) {
                double m = 0, v = 0;
                for (int c = 0; c < C; c++) m += double(x[n * C + c]) / C;
                for (int c = 0; c < C; c++) v += std::pow(x[n * C + c] - m, 2) / C;
                const double s = 1 / std::sqrt(v + eps);
                // The mean is a sum of C numbers of its size in at least 8 lanes, and the
                // deviations inherit its error; the rest is a few roundings of numbers of order 1.
                const double tm = kEps * (C / 8 + 5) * (std::fabs(m) + 1), t = (tm + 8 * kEps) * s;
                EXPECT_NEAR(f.mean[n], m, tm);
                EXPECT_NEAR(f.rstd[n], s, s * (kEps * (C / 8 + 8) + tm * tm / (v + eps)));
                for (int c = 0; c < C; c++) {
                    const double xhat = (x[n * C + c] - m) * s;
                    EXPECT_NEAR(f.y[n * C + c], xhat * w[c] + b[c],
                                (t + kEps * (C / 8 + 8) * std::fabs(xhat)) * std::fabs(w[c]) +
                                    kEps * (std::fabs(b[c]) + 1))
                        << C << " " << mean;
                }
            }
        }
    }
}

TEST(layernorm, backward_is_the_derivative) {
    const int N = 3, C = 7;
    Buffer x = grid_buffer(N * C, "x"), w = grid_buffer(C, "w"), b = grid_buffer(C, "b");
    const Buffer dy = random_buffer(N * C, "dy");
    Buffer dw(C), db(C);
    const Forward f(x, w, b, N, C);
    const Buffer dx = backward(dw, db, dy, x, w, f, N, C);
    const auto loss = [&] { return inner(Forward(x, w, b, N, C).y, dy); };
    expect_derivative("dx", x, dx, loss);
    expect_derivative("dw", w, dw, loss);
    expect_derivative("db", b, db, loss);
}

// dw and db are added to what is there; dx is not. Every N around the sizes of the row blocks.
TEST(layernorm, parameter_gradients_accumulate) {
    for (int N : {1, 15, 16, 17, 33, 1025}) {
        const int C = 5;
        const Buffer x = random_buffer(N * C, "x"), w = random_buffer(C, "w"), b(C);
        const Buffer dy = random_buffer(N * C, "dy");
        const Forward f(x, w, b, N, C);
        Buffer dw(C, 3.f), db(C, -3.f);
        backward(dw, db, dy, x, w, f, N, C);
        for (int c = 0; c < C; c++) {
            double want_w = 3, want_b = -3, size_w = 3, size_b = 3;
            for (int n = 0; n < N; n++) {
                const double g = double(dy[n * C + c]) * (x[n * C + c] - f.mean[n]) * f.rstd[n];
                want_w += g;
                want_b += dy[n * C + c];
                size_w += std::fabs(g);
                size_b += std::fabs(dy[n * C + c]);
            }
            EXPECT_NEAR(dw[c], want_w, kEps * (N / 64 + 64 + 20) * size_w) << N;
            EXPECT_NEAR(db[c], want_b, kEps * (N / 64 + 64 + 20) * size_b) << N;
        }
    }
}

TEST(layernorm, fused_residual_equals_its_parts) {
    const int N = 19, C = 33;
    const Buffer x = random_buffer(N * C, "x"), branch = random_buffer(N * C, "branch");
    const Buffer w = random_buffer(C, "w"), b = random_buffer(C, "b");
    const Buffer dy = random_buffer(N * C, "dy"), above = random_buffer(N * C, "above");
    Buffer residual = x, y(N * C), mean(N), rstd(N), sum(N * C);
    residual_layernorm_forward(residual, y, mean, rstd, residual, branch, w, b, N, C, eps,
                               CpuStream{});  // in place, as the model may call it
    for (int i = 0; i < N * C; i++) sum[i] = x[i] + branch[i];
    const Forward parts(sum, w, b, N, C);
    EXPECT_TRUE(residual == sum);
    EXPECT_TRUE(y == parts.y);
    EXPECT_TRUE(mean == parts.mean);
    EXPECT_TRUE(rstd == parts.rstd);

    Buffer dw(C, 1.f), db(C, 1.f), dw2(C, 1.f), db2(C, 1.f), dresidual = above;
    const Buffer dx = backward(dw, db, dy, sum, w, parts, N, C);
    Scratch ws(layernorm_backward_workspace_bytes(N, C, CpuStream{}));
    residual_layernorm_backward(dresidual, dw2, db2, dy, residual, w, mean, rstd, N, C, ws,
                                CpuStream{});
    for (int i = 0; i < N * C; i++) EXPECT_EQ(dresidual[i], above[i] + dx[i]);
    EXPECT_TRUE(dw == dw2);
    EXPECT_TRUE(db == db2);
}

TEST(layernorm, has_the_same_bits_on_any_threads_and_in_any_company) {
    const int N = 300, C = 65;
    const Buffer x = random_buffer(N * C, "x"), w = random_buffer(C, "w"),
                 b = random_buffer(C, "b");
    const Buffer dy = random_buffer(N * C, "dy");
    const Forward f(x, w, b, N, C);
    expect_same_bits_on_any_threads([&] {
        Buffer all(2 * C), dw(C), db(C);
        backward(dw, db, dy, x, w, f, N, C);
        std::copy_n(dw.data(), C, all.data());
        std::copy_n(db.data(), C, all + C);
        return all;
    });
    for (int n : {0, 1, 77, 299}) {
        Buffer y(C), mean(1), rstd(1);
        layernorm_forward(y, mean, rstd, x + n * C, w, b, 1, C, eps, CpuStream{});
        EXPECT_EQ(std::memcmp(y, f.y + n * C, C * 4), 0);
    }
}
