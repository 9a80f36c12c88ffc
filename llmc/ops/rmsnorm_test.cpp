#include "llmc/ops/rmsnorm.h"

#include "llmc/ops/op_test.h"

namespace {
constexpr float eps = 1e-5f;

struct Forward {
    Buffer y, rstd;
    Forward(const Buffer& x, const Buffer& w, int N, int C) : y(N * C), rstd(N) {
        rmsnorm_forward(y, rstd, x, w, N, C, eps, CpuStream{});
    }
};

// Adds to dw; returns dx.
Buffer backward(Buffer& dw, const Buffer& dy, const Buffer& x, const Buffer& w, const Forward& f,
                int N, int C) {
    Buffer dx(N * C, kNan);
    Scratch ws(rmsnorm_backward_workspace_bytes(N, C, CpuStream{}));
    rmsnorm_backward(dx, dw, dy, x, w, f.rstd, N, C, ws, CpuStream{});
    return dx;
}
}  // namespace

TEST(rmsnorm, forward_against_double) {
    for (int C : {1, 2, 7, 16, 33, 768}) {
        const int N = 3;
        const Buffer x = random_buffer(N * C, "x"), w = random_buffer(C, "w");
        const Forward f(x, w, N, C);
        for (int n = 0; n < N; n++) {
            double squares = 0;
            for (int c = 0; c < C; c++) squares += double(x[n * C + c]) * x[n * C + c];
            const double rstd = 1 / std::sqrt(squares / C + eps);
            // Half the relative error of a sum of C squares in at least 8 lanes, and the roundings
            // of the mean, the root, the quotient and two products.
            const double t = kEps * (C / 16 + 8);
            EXPECT_NEAR(f.rstd[n], rstd, t * rstd) << C;
            for (int c = 0; c < C; c++) {
                const double want = x[n * C + c] * rstd * w[c];
                EXPECT_NEAR(f.y[n * C + c], want, t * std::fabs(want)) << C;
            }
        }
    }
}

TEST(rmsnorm, backward_is_the_derivative) {
    const int N = 3, C = 7;
    Buffer x = grid_buffer(N * C, "x"), w = grid_buffer(C, "w");
    const Buffer dy = random_buffer(N * C, "dy");
    Buffer dw(C);
    const Forward f(x, w, N, C);
    const Buffer dx = backward(dw, dy, x, w, f, N, C);
    const auto loss = [&] { return inner(Forward(x, w, N, C).y, dy); };
    expect_derivative("dx", x, dx, loss);
    expect_derivative("dw", w, dw, loss);
}

// dw is added to what is there; dx is not. Every N around the sizes of the row blocks.
TEST(rmsnorm, parameter_gradients_accumulate) {
    for (int N : {1, 15, 16, 17, 33, 1025}) {
        const int C = 5;
        const Buffer x = random_buffer(N * C, "x"), w = random_buffer(C, "w");
        const Buffer dy = random_buffer(N * C, "dy");
        const Forward f(x, w, N, C);
        Buffer dw(C, 3.f);
        backward(dw, dy, x, w, f, N, C);
        for (int c = 0; c < C; c++) {
            double want = 3, size = 3;
            for (int n = 0; n < N; n++) {
                const double g = double(dy[n * C + c]) * x[n * C + c] * f.rstd[n];
                want += g;
                size += std::fabs(g);
            }
            EXPECT_NEAR(dw[c], want, kEps * (N / 64 + 64 + 20) * size) << N;
        }
    }
}

TEST(rmsnorm, fused_residual_equals_its_parts) {
    const int N = 19, C = 33;
    const Buffer x = random_buffer(N * C, "x"), branch = random_buffer(N * C, "branch");
    const Buffer w = random_buffer(C, "w");
    const Buffer dy = random_buffer(N * C, "dy"), above = random_buffer(N * C, "above");
    Buffer residual = x, y(N * C), rstd(N), sum(N * C);
    residual_rmsnorm_forward(residual, y, rstd, residual, branch, w, N, C, eps,
                             CpuStream{});  // in place, as the model may call it
    for (int i = 0; i < N * C; i++) sum[i] = x[i] + branch[i];
    const Forward parts(sum, w, N, C);
    EXPECT_TRUE(residual == sum);
    EXPECT_TRUE(y == parts.y);
    EXPECT_TRUE(rstd == parts.rstd);

    Buffer dw(C, 1.f), dw2(C, 1.f), dresidual = above;
    const Buffer dx = backward(dw, dy, sum, w, parts, N, C);
    Scratch ws(rmsnorm_backward_workspace_bytes(N, C, CpuStream{}));
    residual_rmsnorm_backward(dresidual, dw2, dy, residual, w, rstd, N, C, ws, CpuStream{});
    for (int i = 0; i < N * C; i++) EXPECT_EQ(dresidual[i], above[i] + dx[i]);
    EXPECT_TRUE(dw == dw2);
}

TEST(rmsnorm, has_the_same_bits_on_any_threads_and_in_any_company) {
    const int N = 300, C = 65;
    const Buffer x = random_buffer(N * C, "x"), w = random_buffer(C, "w");
    const Buffer dy = random_buffer(N * C, "dy");
    const Forward f(x, w, N, C);
    expect_same_bits_on_any_threads([&] {
        Buffer dw(C);
        backward(dw, dy, x, w, f, N, C);
        return dw;
    });
    for (int n : {0, 1, 77, 299}) {
        Buffer y(C), rstd(1);
        rmsnorm_forward(y, rstd, x + n * C, w, 1, C, eps, CpuStream{});
        EXPECT_EQ(std::memcmp(y, f.y + n * C, C * 4), 0);
    }
}
