#include "llmc/ops/adamw.h"

#include "llmc/ops/op_test.h"

namespace {
struct State {
    Buffer p, m, v;
    explicit State(size_t n) : p(random_buffer(n, "p")), m(n), v(n) {}
    void step(const Buffer& gradient, float scale, AdamW hyper, size_t first, size_t n) {
        Buffer g(n);
        std::copy_n(gradient + first, n, g.data());
        adamw_update(p + first, m + first, v + first, g, &scale, n, hyper, CpuStream{});
        EXPECT_TRUE(g == Buffer(n)) << "the gradient is zeroed in the same pass";
    }
};
constexpr AdamW hyper = {3e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 1};
}  // namespace

TEST(adamw, follows_the_equations_in_double) {
    const size_t n = 101;
    State s(n);
    std::vector<double> p(s.p.data(), s.p.data() + n), m(n), v(n);
    const float scale = 0.5f;
    for (int t = 1; t <= 20; t++) {
        AdamW h = hyper;
        h.t = t;
        const Buffer g = random_buffer(n, str("g", t).c_str());
        s.step(g, scale, h, 0, n);
        for (size_t i = 0; i < n; i++) {
            const double gi = double(scale) * g[i], b1 = h.beta1, b2 = h.beta2;
            m[i] = b1 * m[i] + (1 - b1) * gi;
            v[i] = b2 * v[i] + (1 - b2) * gi * gi;
            p[i] -= double(h.lr) * (m[i] / (1 - std::pow(b1, t)) /
                                        (std::sqrt(v[i] / (1 - std::pow(b2, t))) + h.eps) +
                                    double(h.weight_decay) * p[i]);
            // A moment takes 3 roundings of its size a step, of which old ones fade; |m| terms are
            // of order 1. The update is lr times a ratio of order 1 with about 10 roundings, and p
            // itself is rounded once a step.
            EXPECT_NEAR(s.m[i], m[i], kEps * 3 * 10);
            EXPECT_NEAR(s.v[i], v[i], kEps * 4 * 20 * (v[i] + 0.01));
            EXPECT_NEAR(s.p[i], p[i], kEps * t * (std::fabs(p[i]) + 3e-3 * 100)) << t;
        }
    }
}

// The first step moves every element by lr against its gradient's sign, whatever the gradient's
// size.
TEST(adamw, first_step_is_a_sign_step) {
    const size_t n = 4;
    Buffer g(n);
    const float values[n] = {1e-5f, -3.f, 1e5f, -1e-3f};
    std::copy_n(values, n, g.data());
    State s(n);
    const Buffer before = s.p;
    AdamW h = hyper;
    h.weight_decay = 0.f;
    s.step(g, 1.f, h, 0, n);
    for (size_t i = 0; i < n; i++) {
        // eps = 1e-8 takes 1e-3 of the smallest one's step away.
        EXPECT_NEAR(before[i] - s.p[i], std::copysign(h.lr, g[i]), h.lr * 1.1e-3);
    }
}

TEST(adamw, decay_is_decoupled_from_the_gradient) {
    const size_t n = 9;
    State s(n);
    const Buffer before = s.p;
    s.step(Buffer(n), 1.f, hyper, 0, n);
    for (size_t i = 0; i < n; i++) {
        EXPECT_NEAR(s.p[i], before[i] * (1 - double(hyper.lr) * hyper.weight_decay),
                    2 * kEps * std::fabs(before[i]));
        EXPECT_EQ(s.m[i], 0.f);
        EXPECT_EQ(s.v[i], 0.f);
    }
}

TEST(adamw, any_slice_by_anyone_gives_the_same_bits) {
    const size_t n = 1000;
    const Buffer g = random_buffer(n, "g");
    State whole(n);
    whole.step(g, 0.3f, hyper, 0, n);
    for (size_t piece : {1, 7, 16, 33, 500}) {
        State cut(n);
        for (size_t i = 0; i < n; i += piece) cut.step(g, 0.3f, hyper, i, std::min(piece, n - i));
        EXPECT_TRUE(cut.p == whole.p) << piece;
        EXPECT_TRUE(cut.m == whole.m) << piece;
        EXPECT_TRUE(cut.v == whole.v) << piece;
    }
    expect_same_bits_on_any_threads([&] {
        State s(n);
        s.step(g, 0.3f, hyper, 0, n);
        return s.p;
    });
}

TEST(adamw, scale_zero_skips_the_update_and_clears_even_a_nan) {
    const size_t n = 21;
    State s(n);
    s.step(random_buffer(n, "g"), 1.f, hyper, 0, n);
    const State before = s;
    Buffer g(n, kNan);
    s.step(g, 0.f, hyper, 0, n);
    EXPECT_TRUE(s.p == before.p);
    EXPECT_TRUE(s.m == before.m);
    EXPECT_TRUE(s.v == before.v);
}
