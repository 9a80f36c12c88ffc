#include "llmc/core/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

// Known answers published with the generator (Random123, kat_vectors, philox4x32 10).
TEST(rng, philox_known_answers) {
    const PhiloxBlock zero = philox(0, 0, 0);
    EXPECT_EQ(zero.x[0], 0x6627e8d5u);
    EXPECT_EQ(zero.x[1], 0xe169c58du);
    EXPECT_EQ(zero.x[2], 0xbc57ac4cu);
    EXPECT_EQ(zero.x[3], 0x9b00dbd8u);
    const PhiloxBlock ones = philox(~0ull, ~0ull, ~0ull);
    EXPECT_EQ(ones.x[0], 0x408f276du);
    EXPECT_EQ(ones.x[1], 0x41c83b0eu);
    EXPECT_EQ(ones.x[2], 0xa20bc7c6u);
    EXPECT_EQ(ones.x[3], 0x6d5451fdu);
}

TEST(rng, a_slice_has_the_values_of_the_whole) {
    std::vector<float> whole(1001), slice(500);
    random_normal(whole.data(), 1001, 0, 0.f, 0.02f, 42, name_hash("wte"));
    random_normal(slice.data(), 500, 333, 0.f, 0.02f, 42, name_hash("wte"));
    for (int i = 0; i < 500; i++) EXPECT_EQ(slice[i], whole[333 + i]);
}

TEST(rng, normal_has_its_moments_and_streams_are_independent) {
    const int n = 200000;
    std::vector<float> x(n), y(n);
    random_normal(x.data(), n, 0, 0.f, 1.f, 1, name_hash("a"));
    random_normal(y.data(), n, 0, 0.f, 1.f, 1, name_hash("b"));
    double mean = 0, var = 0, kurt = 0, cross = 0;
    for (int i = 0; i < n; i++) {
        mean += x[i];
        var += double(x[i]) * x[i];
        kurt += std::pow(double(x[i]), 4);
        cross += double(x[i]) * y[i];
    }
    // Standard errors are 1/sqrt(n) = 0.0022, sqrt(2/n) = 0.0032, sqrt(96/n) = 0.022: five of each.
    EXPECT_NEAR(mean / n, 0, 0.011);
    EXPECT_NEAR(var / n, 1, 0.016);
    EXPECT_NEAR(kurt / n, 3, 0.11);
    EXPECT_NEAR(cross / n, 0, 0.011);
}
