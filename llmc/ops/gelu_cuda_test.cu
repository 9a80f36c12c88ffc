// gelu.h on CUDA against the CPU.
#include "llmc/ops/gelu.h"

#include "llmc/ops/cuda_test.cuh"

template <class Elem>
struct gelu_cuda : testing::Test {};
TYPED_TEST_SUITE(gelu_cuda, ElemTypes);

// Both sides evaluate the same formula; u and tanh(u) carry a few roundings each, and u's relative
// error is amplified by u (1 - tanh^2) <= 0.5: 16 roundings of |x| (1 for the derivative) are
// ample.
constexpr double kFormula = 16 * kEps;

TYPED_TEST(gelu_cuda, agrees_with_the_cpu_at_any_size_and_alignment) {
    using Elem = TypeParam;
    for (size_t n : {1, 5, 1024, 2051})
        for (size_t shift : {0, 1}) {
            const auto x = random_elems<Elem>(n, "x", 3), dy = random_elems<Elem>(n, "dy");
            const Floats xf = widen(x), dyf = widen(dy);
            Floats y(n), dx(n);
            gelu_forward(y.data(), xf.data(), n, kCpu);
            gelu_backward(dx.data(), dyf.data(), xf.data(), n, kCpu);

            const Device<Elem> gx(x, shift), gdy(dy, shift);
            Device<Elem> gy(n, shift), gdx(n, shift);
            gelu_forward<Elem>(gy, gx, n, kCuda);
            gelu_backward<Elem>(gdx, gdy, gx, n, kCuda);
            expect_close("y", gy.host(), y, [&](size_t i) {
                return kFormula * std::fabs(xf[i]) + kRounding<Elem> * std::fabs(y[i]);
            });
            expect_close("dx", gdx.host(), dx, [&](size_t i) {
                return kFormula * (1 + std::fabs(xf[i])) * std::fabs(dyf[i]) +
                       kRounding<Elem> * std::fabs(dx[i]);
            });
        }
}

TYPED_TEST(gelu_cuda, works_in_place) {
    using Elem = TypeParam;
    const size_t n = 37;
    const auto x = random_elems<Elem>(n, "x"), dy = random_elems<Elem>(n, "dy");
    Device<Elem> gx(x), gdy(dy), out(n);
    gelu_backward<Elem>(out, gdy, gx, n, kCuda);
    gelu_backward<Elem>(gdy, gdy, gx, n, kCuda);
    EXPECT_TRUE(same_bits(gdy.host(), out.host()));
    gelu_forward<Elem>(out, gx, n, kCuda);
    gelu_forward<Elem>(gx, gx, n, kCuda);
    EXPECT_TRUE(same_bits(gx.host(), out.host()));
}

TYPED_TEST(gelu_cuda, is_finite_and_saturates_far_out) {
    using Elem = TypeParam;
    const Floats points = {1e4f, -1e4f, 3e38f, -3e38f, 40.f, -40.f, 0.f, 1e-38f};
    const auto x = narrow<Elem>(points);
    const Floats xf = widen(x);
    const Device<Elem> gx(x), gdy(narrow<Elem>(Floats(x.size(), 1.f)));
    Device<Elem> gy(x.size()), gdx(x.size());
    gelu_forward<Elem>(gy, gx, x.size(), kCuda);
    gelu_backward<Elem>(gdx, gdy, gx, x.size(), kCuda);
    const Floats y = widen(gy.host()), dx = widen(gdx.host());
    for (size_t i = 0; i < 6; i++) {
        EXPECT_EQ(y[i], std::fmax(xf[i], 0.f)) << xf[i];
        EXPECT_EQ(dx[i], xf[i] > 0 ? 1.f : 0.f) << xf[i];
    }
    EXPECT_EQ(y[6], 0.f);
    EXPECT_EQ(dx[6], 0.5f);
    EXPECT_EQ(dx[7], 0.5f);
}
