// classifier.h on CUDA against the CPU.
#include "llmc/ops/classifier.h"

#include "llmc/ops/cuda_test.cuh"

template <class Elem>
struct classifier_cuda : testing::Test {};
TYPED_TEST_SUITE(classifier_cuda, ElemTypes);

namespace {

// N rows of logits; padding columns hold NaN: reading one would show.
template <class Elem>
Elems<Elem> padded_logits(int N, int V, int Vp, float std) {
    auto x = random_elems<Elem>(size_t(N) * Vp, "logits", std);
    for (int n = 0; n < N; n++)
        for (int v = V; v < Vp; v++) x[size_t(n) * Vp + v] = to_elem<Elem>(NAN);
    return x;
}

template <class Elem>
void check(int N, int V, int Vp, size_t shift = 0, float std = 3) {
    SCOPED_TRACE(str("N ", N, ", V ", V, ", Vp ", Vp, ", shifted by ", shift));
    const auto logits = padded_logits<Elem>(N, V, Vp, std);
    auto targets = random_ints(N, "targets", V);
    if (N > 1) targets[1] = kIgnoreTarget;
    if (N > 2) targets[2] = V - 1;
    const float scale = 1.f / 7;
    Floats dlogits = widen(logits), losses(N);
    classifier_forward_backward(losses.data(), dlogits.data(), targets.data(), scale, N, V, Vp,
                                kCpu);

    const Device<int> gtargets(targets);
    Device<Elem> glogits(logits, shift);
    Device<float> glosses(N), gforward(N);
    classifier_forward<Elem>(gforward, glogits, gtargets, N, V, Vp, kCuda);
    EXPECT_TRUE(same_bits(glogits.host(), logits)) << "forward alone must not write";
    classifier_forward_backward<Elem>(glosses, glogits, gtargets, scale, N, V, Vp, kCuda);
    EXPECT_TRUE(same_bits(glosses.host(), gforward.host()));

    // The sum of exponentials passes V / 512 additions of a thread, ten of the butterflies, and up
    // to 512 + V / 512 on the CPU; an exponential is off by its argument's rounding, |x - max|.
    const double range = 2 * 5.5 * std, sum = (V / 512.0 + 10 + 512 + V / 512.0) * kEps;
    const double relative = sum + (range + 4) * 2 * kEps;
    expect_close("losses", glosses.host(), losses,
                 [&](size_t n) { return relative + 4 * kEps * (std::fabs(losses[n]) + range); });
    const Elems<Elem> found = glogits.host();
    expect_close("dlogits", found, dlogits, [&](size_t i) {
        const bool target = targets[i / Vp] == int(i % Vp);
        const double p = std::fabs(dlogits[i] + (target ? scale : 0));
        return 2 * relative * p + (target ? 2 * kEps * scale : 0) +
               kRounding<Elem> * std::fabs(dlogits[i]);
    });
    for (int n = 0; n < N; n++)
        for (int v = targets[n] == kIgnoreTarget ? 0 : V; v < Vp; v++)
            ASSERT_EQ(to_float(found[size_t(n) * Vp + v]), 0.f) << n << ", " << v;
}

}  // namespace

TYPED_TEST(classifier_cuda, serves_every_small_vocabulary) {
    for (int V = 2; V <= 600; V += V < 40 ? 1 : 37) check<TypeParam>(3, V, V);
    for (int V = 2; V <= 600; V += V < 40 ? 3 : 61) check<TypeParam>(3, V, (V + 7) / 8 * 8 + 8);
}

TYPED_TEST(classifier_cuda, serves_vocabularies_around_8k_and_50257) {
    for (int V : {8191, 8192, 8193}) check<TypeParam>(3, V, V);
    check<TypeParam>(2, 50257, 50257);
    check<TypeParam>(2, 50257, 50304);
    check<TypeParam>(2, 65536, 65536);  // more than shared memory holds
}

TYPED_TEST(classifier_cuda, serves_any_alignment_with_the_same_bits) {
    const int N = 3, V = 61, Vp = 64;
    check<TypeParam>(N, V, Vp, 1);
    const auto logits = padded_logits<TypeParam>(N, V, Vp, 3);
    const Device<int> targets(random_ints(N, "targets", V));
    Elems<TypeParam> first;
    for (size_t shift : {0, 1, 3}) {
        Device<TypeParam> x(logits, shift);
        Device<float> losses(N);
        classifier_forward_backward<TypeParam>(losses, x, targets, 0.5f, N, V, Vp, kCuda);
        if (shift == 0) first = x.host();
        EXPECT_TRUE(same_bits(x.host(), first)) << shift;
    }
}

// Logits of +-1e4: the maximum is subtracted before anything is exponentiated.
TYPED_TEST(classifier_cuda, stays_finite_for_huge_logits) {
    const int V = 9;
    Floats x(3 * V, -1e4f);  // of the last row, all
    x[3] = 1e4f;
    x[V + 4] = x[V + 5] = 1e4f;
    Device<TypeParam> logits(narrow<TypeParam>(x));
    const Device<int> targets(std::vector<int>{3, 4, 0});
    Device<float> losses(3);
    classifier_forward_backward<TypeParam>(losses, logits, targets, 1.f, 3, V, V, kCuda);
    const Floats loss = losses.host(), d = widen(logits.host());
    EXPECT_EQ(loss[0], 0.f);
    // log(2) is added to a maximum of 1e4, whose spacing in fp32 is 2^-10.
    EXPECT_NEAR(loss[1], std::log(2.), 0x1p-10);
    EXPECT_NEAR(loss[2], std::log(9.), 0x1p-10);
    EXPECT_EQ(d[3], 0.f);
    EXPECT_EQ(d[V + 4], -0.5f);
    EXPECT_EQ(d[V + 5], 0.5f);
    EXPECT_EQ(d[2 * V + 8], to_float(to_elem<TypeParam>(1.f / 9)));
}
