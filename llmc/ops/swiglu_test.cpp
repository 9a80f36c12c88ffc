#include "llmc/ops/swiglu.h"

#include <cfloat>

#include "llmc/ops/op_test.h"

TEST(swiglu, forward_against_double) {
    const int N = 3, F = 37;
    const Buffer pre = random_buffer(N * 2 * F, "pre", 4.f);
    Buffer y(N * F);
    swiglu_forward(y, pre, N, F, CpuStream{});
    for (int n = 0; n < N; n++) {
        for (int f = 0; f < F; f++) {
            const double gate = pre[n * 2 * F + f], up = pre[n * 2 * F + F + f];
            const double want = gate / (1 + std::exp(-gate)) * up;
            EXPECT_NEAR(y[n * F + f], want, 8 * kEps * std::fabs(want));
        }
    }
}

TEST(swiglu, backward_is_the_derivative) {
    const int N = 2, F = 19;
    Buffer pre = grid_buffer(N * 2 * F, "pre"), y(N * F), dpre(N * 2 * F, kNan);
    const Buffer dy = random_buffer(N * F, "dy");
    swiglu_backward(dpre, dy, pre, N, F, CpuStream{});
    expect_derivative("dpre", pre, dpre, [&] {
        swiglu_forward(y, pre, N, F, CpuStream{});
        return inner(y, dy);
    });
}

TEST(swiglu, is_finite_for_every_finite_gate) {
    for (float gate : {1e4f, 1e20f, FLT_MAX, FLT_TRUE_MIN, 0.f}) {
        for (float sign : {1.f, -1.f}) {
            const Buffer pre = [&] {
                Buffer b(2);
                b[0] = sign * gate, b[1] = 1.f;
                return b;
            }();
            const Buffer dy(1, 1.f);
            Buffer y(1), dpre(2);
            swiglu_forward(y, pre, 1, 1, CpuStream{});
            swiglu_backward(dpre, dy, pre, 1, 1, CpuStream{});
            const float in = sign * gate;
            EXPECT_EQ(y[0], in >= 1e4f ? in : in <= -1e4f ? 0.f : 0.5f * in);
            EXPECT_EQ(dpre[0], in >= 1e4f ? 1.f : in <= -1e4f ? 0.f : 0.5f);
            EXPECT_EQ(dpre[1], y[0]);
        }
    }
}

TEST(swiglu, backward_works_in_place_and_rows_are_on_their_own) {
    const int N = 5, F = 300;
    const Buffer pre = random_buffer(N * 2 * F, "pre", 3.f), dy = random_buffer(N * F, "dy");
    Buffer y(N * F), dpre(N * 2 * F), in_place = pre;
    swiglu_forward(y, pre, N, F, CpuStream{});
    swiglu_backward(dpre, dy, pre, N, F, CpuStream{});
    swiglu_backward(in_place, dy, in_place, N, F, CpuStream{});
    EXPECT_TRUE(dpre == in_place);
    for (int n = 0; n < N; n++) {
        Buffer row(F), drow(2 * F);
        swiglu_forward(row, pre + n * 2 * F, 1, F, CpuStream{});
        swiglu_backward(drow, dy + n * F, pre + n * 2 * F, 1, F, CpuStream{});
        EXPECT_EQ(std::memcmp(row, y + n * F, F * 4), 0);
        EXPECT_EQ(std::memcmp(drow, dpre + n * 2 * F, 2 * F * 4), 0);
    }
}
