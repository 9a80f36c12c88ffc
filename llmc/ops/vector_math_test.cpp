#include "llmc/ops/vector_math.h"

#include <bit>
#include <cfloat>

#include "llmc/ops/op_test.h"

// Distance in units of the last place of the float nearest to the true value; subnormals count
// their own fixed unit.
static double ulps(float got, double truth) {
    const double size = std::max(std::fabs(truth), double(FLT_MIN));
    const double unit = std::ldexp(1.0, std::ilogb(size) - 23);
    return std::fabs(got - truth) / unit;
}

TEST(vector_math, exp_is_within_one_ulp_over_the_whole_range) {
    double worst = 0;
    // Every 1009th float: 4.2 million of them, all exponents, both signs.
    for (uint64_t bits = 0; bits < 1ull << 32; bits += 1009) {
        const float x = std::bit_cast<float>(uint32_t(bits));
        if (!(x > -86.6f && x < 88.72284f)) continue;
        const double error = ulps(vec_exp(x), std::exp(double(x)));
        if (!(error <= worst)) worst = error;  // a NaN gets in
    }
    EXPECT_LE(worst, 1.0);
    RecordProperty("worst_ulp", std::to_string(worst));
}

TEST(vector_math, exp_at_its_ends) {
    EXPECT_EQ(vec_exp(0.f), 1.f);
    EXPECT_EQ(vec_exp(-0.f), 1.f);
    EXPECT_EQ(vec_exp(89.f), INFINITY);
    EXPECT_EQ(vec_exp(FLT_MAX), INFINITY);
    EXPECT_EQ(vec_exp(INFINITY), INFINITY);
    EXPECT_EQ(vec_exp(-86.61f), 0.f);
    EXPECT_EQ(vec_exp(-1e30f), 0.f);
    EXPECT_EQ(vec_exp(-INFINITY), 0.f);
    EXPECT_TRUE(std::isnan(vec_exp(kNan)));
}

// 2u is off by about 3 roundings, so e^(-2u) by 3 |2u| of them, and a few more follow. Where
// e^(-2u) is below 2.5e-38 it counts as 0, which factors below 400 enlarge.
TEST(vector_math, gelu_and_its_derivative_against_double) {
    for (float x = -12.f; x < 12.f; x += 0x1p-10f) {
        const double root = std::sqrt(2 / M_PI), u = root * (x + 0.044715 * std::pow(double(x), 3));
        const double s = 1 / (1 + std::exp(-2 * u)), du = root * (1 + 3 * 0.044715 * double(x) * x);
        const double roundings = 6 + 4 * std::fabs(2 * u);
        EXPECT_NEAR(vec_gelu(vec_all(x))[0], x * s,
                    kEps * roundings * std::fabs(x * s) + 400 * 2.5e-38)
            << x;
        const double slope = x * 2 * s * (1 - s) * du;
        EXPECT_NEAR(vec_gelu_derivative(vec_all(x))[0], s + slope,
                    kEps * (roundings * std::fabs(slope) + roundings * s) + 400 * 2.5e-38)
            << x;
    }
}

TEST(simd, transpose_sum_and_maximum_of_lanes) {
    Vec r[kLanes];
    for (int i = 0; i < kLanes; i++)
        for (int j = 0; j < kLanes; j++) r[i][j] = float(i * kLanes + j);
    const float sum = vec_sum_lanes(r[1]), max = vec_max_lanes(r[1]);
    EXPECT_EQ(sum, float(kLanes * kLanes + kLanes * (kLanes - 1) / 2));
    EXPECT_EQ(max, float(2 * kLanes - 1));
    vec_transpose(r);
    for (int i = 0; i < kLanes; i++)
        for (int j = 0; j < kLanes; j++) EXPECT_EQ(r[i][j], float(j * kLanes + i));
    EXPECT_TRUE(std::signbit(vec_all(-0.f)[0]));
}
