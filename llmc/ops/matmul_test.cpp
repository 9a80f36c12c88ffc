#include "llmc/ops/matmul.h"

#include "llmc/ops/gelu.h"
#include "llmc/ops/op_test.h"

namespace {
constexpr CpuStream s;

struct Layer {
    int N, C, OC;
    Buffer x, w, b, dy;
    Layer(int N, int C, int OC)
        : N(N),
          C(C),
          OC(OC),
          x(grid_buffer(size_t(N) * C, "x")),
          w(grid_buffer(size_t(OC) * C, "w")),
          b(grid_buffer(OC, "b")),
          dy(random_buffer(size_t(N) * OC, "dy")) {}
    Scratch scratch() const { return Scratch(matmul_workspace_bytes(N, C, OC, s)); }
};
}  // namespace

TEST(matmul, forward_and_backward_against_double_at_odd_sizes) {
    const int sizes[][3] = {{1, 1, 1}, {2, 3, 5}, {31, 17, 1}, {67, 33, 129}, {300, 40, 500}};
    for (const auto& [N, C, OC] : sizes) {
        const Layer l(N, C, OC);
        Scratch ws = l.scratch();
        Buffer y(l.dy.size(), kNan), plain(l.dy.size(), kNan), dx(l.x.size(), kNan);
        Buffer dw(l.w.size(), 2.f), db(OC, -2.f), dw_alone(l.w.size(), 2.f);
        matmul_forward(y, l.x, l.w, l.b, N, C, OC, ws, s);
        matmul_forward(plain, l.x, l.w, nullptr, N, C, OC, ws, s);
        matmul_backward_input(dx, l.dy, l.w, N, C, OC, ws, s);
        matmul_backward_params(dw, db, l.dy, l.x, N, C, OC, ws, s);
        matmul_backward_params(dw_alone, nullptr, l.dy, l.x, N, C, OC, ws, s);
        EXPECT_TRUE(dw == dw_alone);
        // sum_k a[i,k] b[k,j] of any two strided matrices, and a bound of what float may lose.
        const auto expect_sum = [](float got, double start, int K, const float* a, int a_stride,
                                   const float* b, int b_stride) {
            double sum = start, size = std::fabs(start);
            for (int k = 0; k < K; k++) {
                const double term = double(a[int64_t(k) * a_stride]) * b[int64_t(k) * b_stride];
                sum += term;
                size += std::fabs(term);
            }
            ASSERT_NEAR(got, sum, kEps * (K + 2) * size);
        };
        const float one = 1.f;
        for (int n = 0; n < N; n++) {
            for (int o = 0; o < OC; o++) {
                expect_sum(y[n * OC + o], l.b[o], C, l.x + n * C, 1, l.w + o * C, 1);
                expect_sum(plain[n * OC + o], 0, C, l.x + n * C, 1, l.w + o * C, 1);
            }
            for (int c = 0; c < C; c++)
                expect_sum(dx[n * C + c], 0, OC, l.dy + n * OC, 1, l.w + c, C);
        }
        for (int o = 0; o < OC; o++) {
            for (int c = 0; c < C; c++) expect_sum(dw[o * C + c], 2, N, l.dy + o, OC, l.x + c, C);
            expect_sum(db[o], -2, N, l.dy + o, OC, &one, 0);
        }
    }
}

TEST(matmul, backward_is_the_derivative) {
    Layer l(3, 5, 7);
    Scratch ws = l.scratch();
    Buffer y(l.dy.size()), dx(l.x.size()), dw(l.w.size()), db(l.b.size());
    matmul_backward_input(dx, l.dy, l.w, l.N, l.C, l.OC, ws, s);
    matmul_backward_params(dw, db, l.dy, l.x, l.N, l.C, l.OC, ws, s);
    const auto loss = [&] {
        matmul_forward(y, l.x, l.w, l.b, l.N, l.C, l.OC, ws, s);
        return inner(y, l.dy);
    };
    expect_derivative("dx", l.x, dx, loss);
    expect_derivative("dw", l.w, dw, loss);
    expect_derivative("db", l.b, db, loss);
}

// Both fused forms do exactly what their parts do, one after the other.
TEST(matmul, fused_gelu_equals_its_parts) {
    const int sizes[][3] = {{1, 3, 2}, {19, 33, 65}, {300, 40, 500}};
    for (const auto& [N, C, OC] : sizes) {
        const Layer l(N, C, OC);
        Scratch ws = l.scratch();
        for (const float* bias : {(const float*)l.b.data(), (const float*)nullptr}) {
            Buffer act(l.dy.size(), kNan), pre(l.dy.size(), kNan), alone(l.dy.size(), kNan);
            matmul_gelu_forward(act, pre, l.x, l.w, bias, N, C, OC, ws, s);
            matmul_gelu_forward(alone, nullptr, l.x, l.w, bias, N, C, OC, ws, s);
            Buffer y(l.dy.size()), gelu(l.dy.size());
            matmul_forward(y, l.x, l.w, bias, N, C, OC, ws, s);
            gelu_forward(gelu, y, y.size(), s);
            EXPECT_TRUE(pre == y);
            EXPECT_TRUE(act == gelu);
            EXPECT_TRUE(alone == gelu);
        }
        Buffer dpre(l.x.size(), kNan), dx(l.x.size()), parts(l.x.size());
        matmul_backward_input_gelu(dpre, l.dy, l.w, l.x, N, C, OC, ws, s);
        matmul_backward_input(dx, l.dy, l.w, N, C, OC, ws, s);
        gelu_backward(parts, dx, l.x, dx.size(), s);
        EXPECT_TRUE(dpre == parts);
    }
}

TEST(matmul, has_the_same_bits_on_any_threads) {
    const Layer l(257, 70, 390);
    expect_same_bits_on_any_threads([&] {
        Scratch ws = l.scratch();
        Buffer act(l.dy.size());
        matmul_gelu_forward(act, nullptr, l.x, l.w, l.b, l.N, l.C, l.OC, ws, s);
        return act;
    });
    expect_same_bits_on_any_threads([&] {
        Scratch ws = l.scratch();
        Buffer dw(l.w.size() + l.b.size());
        matmul_backward_params(dw, dw + l.w.size(), l.dy, l.x, l.N, l.C, l.OC, ws, s);
        return dw;
    });
}
