// swiglu.h on CUDA against the CPU.
#include "llmc/ops/swiglu.h"

#include "llmc/ops/cuda_test.cuh"

template <class Elem>
struct swiglu_cuda : testing::Test {};
TYPED_TEST_SUITE(swiglu_cuda, ElemTypes);

// Both sides evaluate the same formula; e^-|x| carries the rounding of its argument, which it
// enlarges by |x| <= 16 where the value matters, and the rest a few roundings.
constexpr double kFormula = 24 * kEps;

TYPED_TEST(swiglu_cuda, agrees_with_the_cpu_at_any_size_and_alignment) {
    using Elem = TypeParam;
    struct Size {
        int N, F;
    };
    for (const auto [N, F] : {Size{1, 1}, {3, 7}, {5, 172}, {2, 1024}, {17, 33}})
        for (size_t shift : {0, 1}) {
            SCOPED_TRACE(str("N ", N, ", F ", F, ", shifted by ", shift));
            const auto pre = random_elems<Elem>(size_t(N) * 2 * F, "pre", 3);
            const auto dy = random_elems<Elem>(size_t(N) * F, "dy");
            const Floats pref = widen(pre), dyf = widen(dy);
            Floats y(dy.size()), dpre(pre.size());
            swiglu_forward(y.data(), pref.data(), N, F, kCpu);
            swiglu_backward(dpre.data(), dyf.data(), pref.data(), N, F, kCpu);
            const Device<Elem> gpre(pre, shift), gdy(dy, shift);
            Device<Elem> gy(dy.size(), shift), gdpre(pre.size(), shift);
            swiglu_forward<Elem>(gy, gpre, N, F, kCuda);
            swiglu_backward<Elem>(gdpre, gdy, gpre, N, F, kCuda);
            expect_close("y", gy.host(), y,
                         [&](size_t i) { return (kFormula + kRounding<Elem>)*std::fabs(y[i]); });
            expect_close("dpre", gdpre.host(), dpre, [&, F = F](size_t i) {
                const size_t n = i / (2 * F), f = i % (2 * F) % F;
                const double gate = std::fabs(pref[n * 2 * F + f]);
                const double up = std::fabs(pref[n * 2 * F + F + f]);
                // 1 + gate (1 - s) cancels for negative gates.
                return kFormula * std::fabs(dyf[n * F + f]) *
                           (i % (2 * F) < size_t(F) ? up * (1 + gate) : gate) +
                       kRounding<Elem> * std::fabs(dpre[i]);
            });
            // In place: dpre over pre.
            Device<Elem> in_place(pre, shift);
            swiglu_backward<Elem>(in_place, gdy, in_place, N, F, kCuda);
            EXPECT_TRUE(same_bits(in_place.host(), gdpre.host()));
        }
}

// Far out the sigmoid is 1 or 0, and nothing overflows on the way.
TYPED_TEST(swiglu_cuda, is_finite_and_saturates_far_out) {
    const Device<TypeParam> pre(narrow<TypeParam>({8192, -8192, 2, 2}));
    const Device<TypeParam> dy(narrow<TypeParam>({1, 1}));
    Device<TypeParam> y(2), dpre(4);
    swiglu_forward<TypeParam>(y, pre, 1, 2, kCuda);
    swiglu_backward<TypeParam>(dpre, dy, pre, 1, 2, kCuda);
    EXPECT_EQ(widen(y.host()), (Floats{16384, 0}));
    EXPECT_EQ(widen(dpre.host()), (Floats{2, 0, 8192, 0}));
}
