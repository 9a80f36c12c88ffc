#include "llmc/ops/qknorm.h"

#include "llmc/ops/op_test.h"
#include "llmc/ops/rmsnorm.h"

namespace {
constexpr float eps = 1e-6f;
constexpr int H = 3, KV = 2, HS = 5, kHeads = H + KV, kRow = (H + 2 * KV) * HS;

struct Forward {
    Buffer qkv, qk, rstd;
    Forward(const Buffer& x, const Buffer& qw, const Buffer& kw, int N)
        : qkv(x), qk(N * kHeads * HS, kNan), rstd(N * kHeads, kNan) {
        qknorm_forward(qkv, qk, rstd, qw, kw, N, H, KV, HS, eps, CpuStream{});
    }
};

// Adds to dqw and dkw; returns the gradient of what forward was given.
Buffer backward(Buffer& dqw, Buffer& dkw, const Buffer& dy, const Buffer& qw, const Buffer& kw,
                const Forward& f, int N) {
    Buffer dqkv = dy;
    Scratch ws(qknorm_backward_workspace_bytes(N, H, KV, HS, CpuStream{}));
    qknorm_backward(dqkv, dqw, dkw, f.qk, qw, kw, f.rstd, N, H, KV, HS, ws, CpuStream{});
    return dqkv;
}
}  // namespace

// Each head is a row of rmsnorm with its own weight; values and what was there before stay.
TEST(qknorm, is_rmsnorm_of_each_head) {
    const int N = 4;
    const Buffer x = random_buffer(N * kRow, "qkv"), qw = random_buffer(HS, "qw"),
                 kw = random_buffer(HS, "kw");
    const Forward f(x, qw, kw, N);
    for (int n = 0; n < N; n++) {
        for (int h = 0; h < H + 2 * KV; h++) {
            const int at = n * kRow + h * HS;
            Buffer y(HS), rstd(1);
            if (h < kHeads)
                rmsnorm_forward(y, rstd, x + at, h < H ? qw : kw, 1, HS, eps, CpuStream{});
            else
                std::copy_n(x + at, HS, y.data());
            for (int i = 0; i < HS; i++) EXPECT_EQ(f.qkv[at + i], y[i]) << n << " " << h;
            if (h >= kHeads) continue;
            EXPECT_EQ(f.rstd[n * kHeads + h], rstd[0]);
            for (int i = 0; i < HS; i++)
                EXPECT_EQ(f.qk[(n * kHeads + h) * HS + i], x[at + i]) << n << " " << h;
        }
    }
}

TEST(qknorm, backward_is_the_derivative) {
    const int N = 3;
    Buffer x = grid_buffer(N * kRow, "qkv"), qw = grid_buffer(HS, "qw"), kw = grid_buffer(HS, "kw");
    const Buffer dy = random_buffer(N * kRow, "dy");
    Buffer dqw(HS), dkw(HS);
    const Buffer dx = backward(dqw, dkw, dy, qw, kw, Forward(x, qw, kw, N), N);
    const auto loss = [&] { return inner(Forward(x, qw, kw, N).qkv, dy); };
    expect_derivative("dqkv", x, dx, loss);
    expect_derivative("dqw", qw, dqw, loss);
    expect_derivative("dkw", kw, dkw, loss);
}

// Weights' gradients are added to what is there, over any number of blocks of rows.
TEST(qknorm, parameter_gradients_accumulate) {
    for (int N : {1, 16, 17, 1025}) {
        const Buffer x = random_buffer(N * kRow, "qkv"), qw = random_buffer(HS, "qw"),
                     kw = random_buffer(HS, "kw"), dy = random_buffer(N * kRow, "dy");
        const Forward f(x, qw, kw, N);
        Buffer dqw(HS, 3.f), dkw(HS, -2.f);
        backward(dqw, dkw, dy, qw, kw, f, N);
        for (int c = 0; c < HS; c++) {
            double q = 3, k = -2, size_q = 3, size_k = 2;
            for (int n = 0; n < N; n++)
                for (int h = 0; h < kHeads; h++) {
                    const int at = n * kRow + h * HS + c;
                    const double g = double(dy[at]) * x[at] * f.rstd[n * kHeads + h];
                    (h < H ? q : k) += g;
                    (h < H ? size_q : size_k) += std::fabs(g);
                }
            // A block's rows times their heads, then the blocks.
            const double chain = kEps * (H * std::max(16, (N + 63) / 64) + 64 + 8);
            EXPECT_NEAR(dqw[c], q, chain * size_q) << N;
            EXPECT_NEAR(dkw[c], k, chain * size_k) << N;
        }
    }
}

TEST(qknorm, has_the_same_bits_on_any_threads) {
    const int N = 300;
    const Buffer x = random_buffer(N * kRow, "qkv"), qw = random_buffer(HS, "qw"),
                 kw = random_buffer(HS, "kw"), dy = random_buffer(N * kRow, "dy");
    expect_same_bits_on_any_threads([&] {
        const Forward f(x, qw, kw, N);
        Buffer dqw(HS), dkw(HS);
        Buffer all = backward(dqw, dkw, dy, qw, kw, f, N);
        for (const Buffer* more :
             {static_cast<const Buffer*>(&f.qkv), static_cast<const Buffer*>(&dqw),
              static_cast<const Buffer*>(&dkw)})
            for (size_t i = 0; i < more->size(); i++) all[i] += (*more)[i];
        return all;
    });
}
