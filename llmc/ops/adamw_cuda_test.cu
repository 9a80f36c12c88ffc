// adamw.h on CUDA: the CPU's bits for p, m, v; stochastic rounding of the low-precision copy.
#include "llmc/ops/adamw.h"

#include "llmc/ops/cuda_test.cuh"

namespace {

constexpr AdamW kHyper{1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 3};

struct State {
    Floats p, m, v, grad;
    explicit State(size_t n)
        : p(random_elems<float>(n, "p")),
          m(random_elems<float>(n, "m", 0.1f)),
          v(random_elems<float>(n, "v", 0.1f)),
          grad(random_elems<float>(n, "grad")) {
        for (float& x : v) x *= x;
    }
};

// Elements [from, from + n) of a state updated on the device.
template <class Elem>
struct Updated {
    Floats p, m, v, grad;
    Elems<Elem> low;
    Updated(const State& s, size_t from, size_t n, float scale, RoundingKey key, size_t shift = 0,
            AdamW hyper = kHyper) {
        const auto part = [&](const Floats& x) {
            return Floats(x.begin() + from, x.begin() + from + n);
        };
        Device<float> gp(part(s.p), shift), gm(part(s.m), shift), gv(part(s.v), shift),
            ggrad(part(s.grad), shift);
        const Device<float> gscale(Floats{scale});
        Device<Elem> glow(n, shift);
        key.index += from;
        adamw_update<Elem>(gp, glow, gm, gv, ggrad, gscale, n, hyper, key, kCuda);
        p = gp.host(), m = gm.host(), v = gv.host(), grad = ggrad.host(), low = glow.host();
    }
};

}  // namespace

TEST(adamw_cuda, has_the_bits_of_the_cpu_at_any_size_and_alignment) {
    for (size_t n : {1, 3, 4, 1023, 1024, 1029})
        for (size_t shift : {0, 1}) {
            State s(n);
            const Updated<bf16> u(s, 0, n, 0.7f, {}, shift);
            const Updated<float> f(s, 0, n, 0.7f, {}, shift);
            const float scale = 0.7f;
            adamw_update(s.p.data(), s.m.data(), s.v.data(), s.grad.data(), &scale, n, kHyper,
                         kCpu);
            EXPECT_TRUE(same_bits(u.p, s.p)) << n;
            EXPECT_TRUE(same_bits(u.m, s.m)) << n;
            EXPECT_TRUE(same_bits(u.v, s.v)) << n;
            EXPECT_TRUE(same_bits(u.grad, Floats(n, 0.f))) << n;
            EXPECT_TRUE(same_bits(u.low, narrow<bf16>(s.p))) << n;
            EXPECT_TRUE(same_bits(f.p, s.p) && same_bits(f.low, s.p)) << n;
        }
}

TEST(adamw_cuda, works_without_a_low_precision_copy) {
    State s(37);
    Device<float> p(s.p), m(s.m), v(s.v), grad(s.grad);
    const Device<float> scale(Floats{1.f});
    adamw_update<float>(p, nullptr, m, v, grad, scale, 37, kHyper, {}, kCuda);
    const float one = 1;
    adamw_update(s.p.data(), s.m.data(), s.v.data(), s.grad.data(), &one, 37, kHyper, kCpu);
    EXPECT_TRUE(same_bits(p.host(), s.p));
}

TEST(adamw_cuda, scale_zero_only_zeroes_the_gradient) {
    State s(1029);
    s.grad[5] = NAN;  // the reason to skip
    const Updated<bf16> u(s, 0, 1029, 0.f, {1, 2, 3, true});
    EXPECT_TRUE(same_bits(u.p, s.p) && same_bits(u.m, s.m) && same_bits(u.v, s.v));
    EXPECT_TRUE(same_bits(u.grad, Floats(1029, 0.f)));
    EXPECT_TRUE(same_bits(u.low, Device<bf16>(1029).host())) << "the copy is not written either";
}

// The bits of an element are its own: any slice, starting anywhere, gives them.
TEST(adamw_cuda, slices_give_the_bits_of_the_whole) {
    const size_t n = 1500;
    const State s(n);
    const RoundingKey key{11, name_hash("h.0.fc.weight"), 64, true};
    const Updated<bf16> whole(s, 0, n, 1.f, key);
    for (size_t from : {1, 2, 3, 64, 701}) {
        const Updated<bf16> part(s, from, n - from, 1.f, key, from % 3);
        const auto tail = [&](auto x) {
            x.erase(x.begin(), x.begin() + from);
            return x;
        };
        EXPECT_TRUE(same_bits(part.p, tail(whole.p))) << from;
        EXPECT_TRUE(same_bits(part.low, tail(whole.low))) << from;
    }
}

// Element i takes bits of Philox block (i / 4, name and step): the documented function, from the
// host's own generator.
TEST(adamw_cuda, stochastic_rounding_is_the_documented_function) {
    const size_t n = 301;
    const State s(n);
    const RoundingKey key{11, name_hash("wte"), 2, true};
    const Updated<bf16> u(s, 0, n, 1.f, key);
    for (size_t i = 0; i < n; i++) {
        const uint64_t index = key.index + i;
        const PhiloxBlock r =
            philox(index / 4, key.name + uint64_t(kHyper.t) * 0x9E3779B97F4A7C15u, key.seed);
        const uint32_t bits = std::bit_cast<uint32_t>(u.p[i]) + (r.x[index % 4] & 0xffff);
        EXPECT_EQ(u.low[i].bits, bits >> 16) << i;
    }
}

// With gradient, m and decay zero the parameter stays, so its copy shows the rounding alone.
static std::vector<int> rounded_up(float value, size_t n, RoundingKey key, int64_t t) {
    State s(n);
    std::fill(s.p.begin(), s.p.end(), value);
    for (Floats* x : {&s.m, &s.v, &s.grad}) std::fill(x->begin(), x->end(), 0.f);
    AdamW hyper = kHyper;
    hyper.weight_decay = 0;
    hyper.t = t;
    const Updated<bf16> u(s, 0, n, 1.f, key, 0, hyper);
    std::vector<int> up(n);
    for (size_t i = 0; i < n; i++) {
        up[i] = to_float(u.low[i]) > value;
        // One of the two neighbours, never another value.
        EXPECT_LT(std::fabs(to_float(u.low[i]) - value), 0x1p-7f);
    }
    return up;
}

// Rounding up is a coin whose bias is the dropped part. Bounds: 5 standard deviations.
TEST(adamw_cuda, stochastic_rounding_is_unbiased) {
    const size_t n = 20000;
    for (float part : {0.25f, 0.5f, 0.9f}) {
        double ups = 0;
        for (int up : rounded_up(1 + part * 0x1p-7f, n, {3, 4, 0, true}, 1)) ups += up;
        EXPECT_NEAR(ups / n, part, 5 * std::sqrt(part * (1 - part) / n));
    }
}

// Coins of different names, steps, seeds and neighbouring indices agree half of the time.
TEST(adamw_cuda, stochastic_rounding_is_independent_over_name_step_seed_and_index) {
    const size_t n = 20000;
    const float value = 1 + 0.5f * 0x1p-7f;
    const auto base = rounded_up(value, n, {3, name_hash("a"), 0, true}, 1);
    const auto agreement = [&](const std::vector<int>& a, size_t lag) {
        double same = 0;
        for (size_t i = lag; i < n; i++) same += a[i] == base[i - lag];
        return same / double(n - lag);
    };
    const double bound = 5 * 0.5 / std::sqrt(double(n));
    EXPECT_NEAR(agreement(rounded_up(value, n, {3, name_hash("b"), 0, true}, 1), 0), 0.5, bound);
    EXPECT_NEAR(agreement(rounded_up(value, n, {3, name_hash("a"), 0, true}, 2), 0), 0.5, bound);
    EXPECT_NEAR(agreement(rounded_up(value, n, {4, name_hash("a"), 0, true}, 1), 0), 0.5, bound);
    for (size_t lag : {1, 2, 3, 4, 8}) EXPECT_NEAR(agreement(base, lag), 0.5, bound) << lag;
}

TEST(adamw_cuda, stochastic_rounding_keeps_infinities_and_nan) {
    for (float value : {INFINITY, -INFINITY}) {
        State s(4);
        std::fill(s.p.begin(), s.p.end(), value);
        const Updated<bf16> u(s, 0, 4, 1.f, {1, 1, 0, true});
        // p - lr * decay * p is NaN or infinite, never a finite number.
        for (const bf16 x : u.low) EXPECT_FALSE(std::isfinite(to_float(x)));
    }
}
