// clip.h on CUDA: the CPU's bits, for sums of every size and for everything that is not finite.
#include "llmc/ops/clip.h"

#include <limits>

#include "llmc/ops/cuda_test.cuh"

namespace {
void expect_as_cpu(const FixedSum& squares, const FixedSum& loss, int flag, double most) {
    const Device<FixedSum> ds(std::vector<FixedSum>{squares}), dl(std::vector<FixedSum>{loss});
    Device<int> dflag(std::vector<int>{flag});
    Device<float> dscale(1), dnorm(1);
    gradient_clip(dscale, dnorm, ds, dl, dflag, most, kCuda);
    float scale = -1, norm = -1;
    gradient_clip(&scale, &norm, &squares, &loss, &flag, most, kCpu);
    EXPECT_EQ(dscale.host()[0], scale) << fixed_sum_value(squares);
    EXPECT_EQ(dflag.host()[0], 0);
    const float found = dnorm.host()[0];
    if (std::isnan(norm))
        EXPECT_TRUE(std::isnan(found));
    else
        EXPECT_EQ(found, norm) << fixed_sum_value(squares);
}
}  // namespace

TEST(clip_cuda, has_the_bits_of_the_cpu) {
    FixedSum loss;
    fixed_sum_add(loss, 1.5);
    for (uint64_t i = 0; i < 200; i++) {
        FixedSum squares;
        // 2^-60 to 2^40, with several limbs in use.
        const double size = std::ldexp(1.0 + random_uniform(1, 0, i), int(i % 100) - 60);
        for (int k = 0; k < 3; k++) fixed_sum_add(squares, size * random_uniform(1, 1, 3 * i + k));
        expect_as_cpu(squares, loss, 0, i % 3 ? 0.1 * double(i % 17) : 0.0);
    }
}

TEST(clip_cuda, skips_what_is_not_finite) {
    FixedSum good, bad;
    fixed_sum_add(good, 4.0);
    fixed_sum_add(bad, std::numeric_limits<double>::infinity());
    expect_as_cpu(bad, good, 0, 1);
    expect_as_cpu(good, bad, 0, 1);
    expect_as_cpu(good, good, 1, 1);
    // What ranks add up as plain integers: limbs beyond their range.
    expect_as_cpu({3, (int64_t(1) << 52) + 5, (int64_t(1) << 53) + 7, 0}, good, 0, 1);
    expect_as_cpu({0, 3, (int64_t(5) << 50) + 7, 0}, good, 0, 1);
    // Beyond the range together, though no rank alone was.
    expect_as_cpu({int64_t(1) << 50, 0, 0, 0}, good, 0, 1);
    expect_as_cpu({(int64_t(1) << 50) - 1, 3, 7, 0}, good, 0, 1);
}
