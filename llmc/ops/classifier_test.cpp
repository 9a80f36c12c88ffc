#include "llmc/ops/classifier.h"

#include "llmc/ops/op_test.h"

namespace {
int padded(int V) {
    return (V + 127) / 128 * 128;
}

// (N, padded V) with NaN in the padding: whoever reads it is found out.
Buffer random_logits(int N, int V, float size) {
    const int Vp = padded(V);
    Buffer logits(size_t(N) * Vp, kNan);
    for (int n = 0; n < N; n++)
        random_normal(logits + size_t(n) * Vp, V, uint64_t(n) * V, 0.f, size, 1,
                      name_hash("logits"));
    return logits;
}

// Checks losses and gradients of both functions against double.
void check(int V, float size) {
    const int N = 5, Vp = padded(V);
    const int targets[N] = {0, V - 1, kIgnoreTarget, V / 2, V / 3};
    const Buffer logits = random_logits(N, V, size);
    Buffer grad = logits, losses(N, kNan), losses2(N, kNan);
    const float scale = 0.25f;
    classifier_forward(losses, logits, targets, N, V, Vp, CpuStream{});
    classifier_forward_backward(losses2, grad, targets, scale, N, V, Vp, CpuStream{});
    EXPECT_TRUE(losses == losses2);
    for (int n = 0; n < N; n++) {
        const float *x = logits + n * Vp, *d = grad + n * Vp;
        const bool ignored = targets[n] == kIgnoreTarget;
        double m = x[0], sum = 0;
        for (int v = 0; v < V; v++) m = std::max<double>(m, x[v]);
        for (int v = 0; v < V; v++) sum += std::exp(x[v] - m);
        // The difference x - max is rounded once, so an exponential is off by about |x - max| + 2
        // roundings; chunks of 512 in at least 4 lanes add 128 more to their sum at the worst.
        const double roundings = 130 + 16. * size,
                     loss = ignored ? 0 : std::log(sum) + m - x[targets[n]];
        EXPECT_NEAR(losses[n], loss, kEps * (roundings + std::fabs(m) + std::fabs(loss) + 1)) << V;
        for (int v = 0; v < V; v++) {
            const double p = ignored ? 0 : std::exp(x[v] - m) / sum, hit = v == targets[n];
            ASSERT_NEAR(d[v], scale * (p - hit), kEps * scale * (roundings * p + hit))
                << V << " " << v;
        }
        for (int v = V; v < Vp; v++) ASSERT_EQ(d[v], 0.f) << V << " " << v;
    }
}
}  // namespace

TEST(classifier, every_vocabulary_from_2_to_600_and_some_large_ones) {
    for (int V = 2; V <= 600; V++) check(V, 2.f);
    for (int V : {8191, 8192, 8193, 50257, 65536}) check(V, 2.f);
}

TEST(classifier, backward_is_the_derivative) {
    const int N = 2, V = 11, Vp = 13, targets[N] = {4, 10};
    const float scale = 0.5f;
    Buffer logits(N * Vp, kNan), losses(N);
    const Buffer values = grid_buffer(N * V, "logits");
    for (int n = 0; n < N; n++) std::copy_n(values + n * V, V, logits + n * Vp);
    Buffer grad = logits;
    classifier_forward_backward(losses, grad, targets, scale, N, V, Vp, CpuStream{});
    for (int n = 0; n < N; n++) {
        Buffer row(V), drow(V);
        std::copy_n(logits + n * Vp, V, row.data());
        std::copy_n(grad + n * Vp, V, drow.data());
        expect_derivative("dlogits", row, drow, [&] {
            Buffer loss(1), padded_row(Vp, kNan);
            std::copy_n(row.data(), V, padded_row.data());
            classifier_forward(loss, padded_row, targets + n, 1, V, Vp, CpuStream{});
            return double(scale) * loss[0];
        });
    }
}

TEST(classifier, large_logits_stay_finite_and_win) {
    const int V = 5;
    Buffer logits(2 * V, -1e3f), losses(2);
    logits[3] = 1e3f;
    logits[V + 3] = 1e3f;
    const int targets[2] = {3, 0};
    classifier_forward_backward(losses, logits, targets, 1.f, 2, V, V, CpuStream{});
    EXPECT_EQ(losses[0], 0.f);
    EXPECT_EQ(losses[1], 2e3f);
    for (int v = 0; v < V; v++) EXPECT_EQ(logits[v], 0.f);
    EXPECT_EQ(logits[V], -1.f);
    EXPECT_EQ(logits[V + 3], 1.f);
}

TEST(classifier, ignored_rows_count_for_nothing_whatever_they_hold) {
    const int V = 9, Vp = 16, targets[2] = {kIgnoreTarget, kIgnoreTarget};
    Buffer logits(2 * Vp, kNan), losses(2, kNan);
    classifier_forward(losses, logits, targets, 2, V, Vp, CpuStream{});
    EXPECT_EQ(losses[0] + losses[1], 0.f);
    classifier_forward_backward(losses, logits, targets, 1.f, 2, V, Vp, CpuStream{});
    EXPECT_EQ(losses[0] + losses[1], 0.f);
    for (int i = 0; i < 2 * Vp; i++) EXPECT_EQ(logits[i], 0.f);
}

TEST(classifier, a_bad_logit_is_seen_in_the_loss) {
    for (float bad : {kNan, INFINITY}) {
        Buffer logits(33, 1.f), loss(1);
        logits[20] = bad;
        const int target = 3;
        classifier_forward(loss, logits, &target, 1, 33, 33, CpuStream{});
        EXPECT_FALSE(std::isfinite(loss[0]));
    }
}

TEST(classifier, chunks_of_rows_and_threads_do_not_change_bits) {
    const int N = 12, V = 300, Vp = padded(V);
    int targets[N];
    for (int n = 0; n < N; n++) targets[n] = n * 17 % V;
    const auto in_chunks_of = [&](int rows) {
        Buffer x = random_logits(N, V, 2.f), losses(N);
        for (int n = 0; n < N; n += rows)
            classifier_forward_backward(losses + n, x + n * Vp, targets + n, 0.1f,
                                        std::min(rows, N - n), V, Vp, CpuStream{});
        return x;
    };
    const Buffer whole = in_chunks_of(N);
    for (int rows : {1, 5, 8}) EXPECT_TRUE(in_chunks_of(rows) == whole) << rows;
    expect_same_bits_on_any_threads([&] { return in_chunks_of(N); });
}
