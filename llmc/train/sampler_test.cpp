#include "llmc/train/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

static std::map<int, double> frequencies(const std::vector<float>& logits, const Sampling& how) {
    const int n = 40000;
    std::map<int, double> f;
    for (int i = 0; i < n; i++)
        f[sample_token(logits.data(), int(logits.size()), how, uint64_t(i))] += 1.0 / n;
    return f;
}

// Five standard errors of a frequency over 40000 draws are at most 5 * 0.5 / 200.
constexpr double kTolerance = 0.0125;

TEST(sampler, draws_follow_the_softmax) {
    const std::vector<float> logits = {std::log(1.f), std::log(2.f), std::log(3.f), std::log(4.f)};
    auto f = frequencies(logits, {1, 0, 1, 7});
    for (int i = 0; i < 4; i++) EXPECT_NEAR(f[i], (i + 1) / 10.0, kTolerance);
    f = frequencies(logits, {0.5, 0, 1, 7});  // squares: 1, 4, 9, 16 of 30
    for (int i = 0; i < 4; i++) EXPECT_NEAR(f[i], (i + 1) * (i + 1) / 30.0, kTolerance);
}

TEST(sampler, top_k_and_top_p_cut_the_tail) {
    const std::vector<float> logits = {std::log(1.f), std::log(4.f), std::log(3.f), std::log(2.f)};
    auto f = frequencies(logits, {1, 2, 1, 7});
    EXPECT_EQ(f.size(), 2u);
    EXPECT_NEAR(f[1], 4 / 7.0, kTolerance);
    f = frequencies(logits, {1, 0, 0.69, 7});  // 0.4 + 0.3 reach 0.69
    EXPECT_EQ(f.size(), 2u);
    f = frequencies(logits, {1, 0, 0.71, 7});  // ... but not 0.71
    EXPECT_EQ(f.size(), 3u);
    f = frequencies(logits, {1, 0, 1e-9, 7});
    EXPECT_EQ(f.size(), 1u);
    EXPECT_EQ(f.begin()->first, 1);
}

TEST(sampler, temperature_zero_takes_the_most_likely_and_ties_the_lowest_id) {
    const std::vector<float> logits = {1.f, 5.f, 5.f, 2.f};
    for (uint64_t i = 0; i < 100; i++)
        EXPECT_EQ(sample_token(logits.data(), 4, {0, 0, 1, i}, i), 1);
}

TEST(sampler, huge_logits_do_not_overflow) {
    const std::vector<float> logits = {1000.f, 999.f, -1000.f};
    const auto f = frequencies(logits, {1, 0, 1, 3});
    EXPECT_NEAR(f.at(0), 1 / (1 + std::exp(-1.0)), kTolerance);
    EXPECT_EQ(f.count(2), 0u);
}

TEST(sampler, a_draw_is_a_function_of_seed_and_index) {
    const std::vector<float> logits(50, 0.f);
    int differ = 0;
    for (uint64_t i = 0; i < 100; i++) {
        const int a = sample_token(logits.data(), 50, {1, 0, 1, 1}, i);
        EXPECT_EQ(a, sample_token(logits.data(), 50, {1, 0, 1, 1}, i));
        differ += a != sample_token(logits.data(), 50, {1, 0, 1, 2}, i);
    }
    EXPECT_GT(differ, 80);
}
