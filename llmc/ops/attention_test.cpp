#include "llmc/ops/attention.h"

#include "llmc/ops/op_test.h"

namespace {
constexpr CpuStream s;

struct Shape {
    int B, T, H, KV, HS;
    size_t rows() const { return size_t(B) * T; }
    int width() const { return (H + 2 * KV) * HS; }
};

struct Forward {
    Buffer out, lse;
    Forward(const Buffer& qkv, Shape a)
        : out(a.rows() * a.H * a.HS, kNan), lse(size_t(a.B) * a.H * a.T, kNan) {
        Scratch ws(attention_forward_workspace_bytes(a.B, a.T, a.H, a.KV, a.HS, s));
        attention_forward(out, lse, qkv, a.B, a.T, a.H, a.KV, a.HS, ws, s);
    }
};

Buffer backward(const Buffer& dout, const Buffer& qkv, const Forward& f, Shape a) {
    Buffer dqkv(qkv.size(), kNan);
    Scratch ws(attention_backward_workspace_bytes(a.B, a.T, a.H, a.KV, a.HS, s));
    attention_backward(dqkv, dout, qkv, f.out, f.lse, a.B, a.T, a.H, a.KV, a.HS, ws, s);
    return dqkv;
}

// The equations of the contract, in double, with the whole matrix of probabilities.
struct Truth {
    std::vector<double> out, lse, dqkv;
    Truth(const Buffer& qkv, const Buffer& dout, Shape a)
        : out(dout.size()), lse(size_t(a.B) * a.H * a.T), dqkv(qkv.size()) {
        const double scale = 1 / std::sqrt(double(a.HS));
        for (int b = 0; b < a.B; b++) {
            for (int h = 0; h < a.H; h++) {
                const int kv = h / (a.H / a.KV);
                const auto q = [&](int t) { return (size_t(b) * a.T + t) * a.width() + h * a.HS; };
                const auto k = [&](int t) {
                    return (size_t(b) * a.T + t) * a.width() + (a.H + kv) * a.HS;
                };
                const auto v = [&](int t) { return k(t) + size_t(a.KV) * a.HS; };
                for (int t = 0; t < a.T; t++) {
                    std::vector<double> p(t + 1);
                    double sum = 0, D = 0;
                    for (int u = 0; u <= t; u++) {
                        for (int i = 0; i < a.HS; i++)
                            p[u] += scale * qkv[q(t) + i] * qkv[k(u) + i];
                    }
                    const double m = *std::max_element(p.begin(), p.end());
                    for (double& e : p) sum += e = std::exp(e - m);
                    lse[(size_t(b) * a.H + h) * a.T + t] = m + std::log(sum);
                    const size_t o = ((size_t(b) * a.T + t) * a.H + h) * a.HS;
                    for (int u = 0; u <= t; u++) {
                        p[u] /= sum;
                        for (int i = 0; i < a.HS; i++) out[o + i] += p[u] * qkv[v(u) + i];
                    }
                    for (int i = 0; i < a.HS; i++) D += dout[o + i] * out[o + i];
                    for (int u = 0; u <= t; u++) {
                        double dp = 0;
                        for (int i = 0; i < a.HS; i++) dp += double(dout[o + i]) * qkv[v(u) + i];
                        const double ds = p[u] * (dp - D) * scale;
                        for (int i = 0; i < a.HS; i++) {
                            dqkv[q(t) + i] += ds * qkv[k(u) + i];
                            dqkv[k(u) + i] += ds * qkv[q(t) + i];
                            dqkv[v(u) + i] += p[u] * dout[o + i];
                        }
                    }
                }
            }
        }
    }
};

// Inputs are of order 1. A score is a sum of HS products: off by HS roundings of about its size, so
// a probability is off by that share, and out, an average of v, by no more, plus the T roundings of
// its own sum, which cancel statistically: sqrt(T) of them with a factor of 4 to spare. Gradients
// add up T such terms of size |dS| or P, whose sum over a row is of order 1, and over a column a
// few.
void check(Shape a) {
    const Buffer qkv = random_buffer(a.rows() * a.width(), "qkv");
    const Buffer dout = random_buffer(a.rows() * a.H * a.HS, "dout");
    const Forward f(qkv, a);
    const Buffer dqkv = backward(dout, qkv, f, a);
    const Truth truth(qkv, dout, a);
    const double t = kEps * (8 + 2 * std::sqrt(double(a.HS)) + 4 * std::sqrt(double(a.T))) * 4;
    for (size_t i = 0; i < f.out.size(); i++)
        ASSERT_NEAR(f.out[i], truth.out[i], t) << a.T << " " << a.HS;
    for (size_t i = 0; i < f.lse.size(); i++)
        ASSERT_NEAR(f.lse[i], truth.lse[i], t) << a.T << " " << a.HS;
    for (size_t i = 0; i < dqkv.size(); i++) {
        ASSERT_NEAR(dqkv[i], truth.dqkv[i], t * a.H / a.KV * (4 + std::fabs(truth.dqkv[i])))
            << a.T << " " << a.HS << " at " << i % a.width();
    }
}
}  // namespace

TEST(attention, forward_and_backward_against_double_at_every_head_size) {
    for (int HS = 1; HS <= 40; HS++) check({1, 9, 2, 1, HS});
    for (int HS : {48, 63, 64, 65, 80, 96, 100, 128, 130, 256}) check({1, 21, 2, 1, HS});
}

TEST(attention, at_every_length_around_the_tiles) {
    for (int T = 1; T <= 140; T++) check({1, T, 1, 1, 5});
    for (int T : {1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257, 500}) check({2, T, 2, 2, 16});
}

TEST(attention, groups_of_query_heads_share_a_key) {
    for (int KV : {1, 2, 3, 6}) check({2, 70, 6, KV, 8});
}

TEST(attention, backward_is_the_derivative) {
    const Shape a{2, 5, 4, 2, 3};
    Buffer qkv = grid_buffer(a.rows() * a.width(), "qkv");
    const Buffer dout = random_buffer(a.rows() * a.H * a.HS, "dout");
    const Buffer dqkv = backward(dout, qkv, Forward(qkv, a), a);
    expect_derivative("dqkv", qkv, dqkv, [&] { return inner(Forward(qkv, a).out, dout); });
}

TEST(attention, later_tokens_change_no_bit_of_earlier_rows) {
    const Shape a{1, 90, 2, 2, 7};
    Buffer qkv = random_buffer(a.rows() * a.width(), "qkv");
    const Forward before(qkv, a);
    for (int t = 45; t < a.T; t++)
        for (int i = 0; i < a.width(); i++) qkv[t * a.width() + i] = 1e3f;
    const Forward after(qkv, a);
    EXPECT_EQ(std::memcmp(before.out, after.out, 45 * a.H * a.HS * sizeof(float)), 0);
    EXPECT_NE(std::memcmp(before.out, after.out, 46 * a.H * a.HS * sizeof(float)), 0);
}

TEST(attention, huge_scores_pick_one_key_and_stay_finite) {
    const Shape a{1, 70, 1, 1, 4};
    Buffer qkv(a.rows() * a.width());
    for (int t = 0; t < a.T; t++) {
        float* row = qkv + t * a.width();
        row[0] = 1e3f;                   // q
        row[4] = t == 3 ? 1e3f : -1e3f;  // k: only key 3 points the same way
        row[8] = float(t);               // v
    }
    const Forward f(qkv, a);
    for (int t = 3; t < a.T; t++) EXPECT_EQ(f.out[t * 4], 3.f);
    const Buffer dqkv = backward(Buffer(f.out.size(), 1.f), qkv, f, a);
    for (size_t i = 0; i < dqkv.size(); i++) EXPECT_TRUE(std::isfinite(dqkv[i])) << i;
}

TEST(attention, a_bad_value_is_seen) {
    const Shape a{1, 70, 2, 2, 4};
    for (int column = 0; column < a.width(); column += 4) {
        Buffer qkv = random_buffer(a.rows() * a.width(), "qkv");
        qkv[66 * a.width() + column] = kNan;
        const Forward f(qkv, a);
        bool seen = false;
        for (int i = 66 * 8; i < 70 * 8; i++) seen = seen || std::isnan(f.out[i]);
        EXPECT_TRUE(seen) << column;
    }
}

TEST(attention, has_the_same_bits_on_any_threads_and_in_any_company) {
    const Shape a{3, 150, 4, 2, 16};
    const Buffer qkv = random_buffer(a.rows() * a.width(), "qkv");
    const Buffer dout = random_buffer(a.rows() * a.H * a.HS, "dout");
    const Forward f(qkv, a);
    expect_same_bits_on_any_threads([&] { return Forward(qkv, a).out; });
    expect_same_bits_on_any_threads([&] { return backward(dout, qkv, f, a); });
    // The second sequence alone.
    const Shape one{1, a.T, a.H, a.KV, a.HS};
    const size_t wide = size_t(a.T) * a.width(), narrow = size_t(a.T) * a.H * a.HS;
    Buffer qkv1(wide), dout1(narrow);
    std::copy_n(qkv + wide, wide, qkv1.data());
    std::copy_n(dout + narrow, narrow, dout1.data());
    const Forward f1(qkv1, one);
    EXPECT_EQ(std::memcmp(f1.out, f.out + narrow, narrow * sizeof(float)), 0);
    EXPECT_EQ(std::memcmp(backward(dout1, qkv1, f1, one), backward(dout, qkv, f, a) + wide,
                          wide * sizeof(float)),
              0);
}

TEST(attention, memory_grows_with_T_not_its_square) {
    const auto bytes = [](int T) {
        return attention_forward_workspace_bytes(2, T, 12, 12, 64, s) +
               attention_backward_workspace_bytes(2, T, 12, 12, 64, s);
    };
    EXPECT_LE(bytes(65536), 66 * bytes(1024));
}

TEST(attention, decode_continues_a_sequence) {
    const Shape a{1, 131, 6, 2, 9};
    const Buffer qkv = random_buffer(a.rows() * a.width(), "qkv");
    const Forward f(qkv, a);
    Buffer k(a.T * a.KV * a.HS), v(a.T * a.KV * a.HS), out(a.H * a.HS);
    for (int t = 0; t < a.T; t++) {
        const float* row = qkv + t * a.width();
        std::copy_n(row + a.H * a.HS, a.KV * a.HS, k + t * a.KV * a.HS);
        std::copy_n(row + (a.H + a.KV) * a.HS, a.KV * a.HS, v + t * a.KV * a.HS);
        attention_decode(out, row, k, v, t, a.H, a.KV, a.HS, s);
        // Both are within `t` of check() of the truth.
        for (int i = 0; i < a.H * a.HS; i++)
            EXPECT_NEAR(out[i], f.out[t * a.H * a.HS + i], 2 * kEps * 4 * (8 + 6 + 46)) << t;
    }
}
