#include "llmc/ops/clip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace {
struct Clipped {
    float scale = -1, norm = -1;
    int flag;
};
Clipped clip(double squares, double loss, int flag, double most) {
    FixedSum s, l;
    fixed_sum_add(s, squares);
    fixed_sum_add(l, loss);
    Clipped c{-1, -1, flag};
    gradient_clip(&c.scale, &c.norm, &s, &l, &c.flag, most, CpuStream{});
    return c;
}
constexpr double kInf = std::numeric_limits<double>::infinity();
}  // namespace

TEST(clip, scales_a_long_gradient_to_the_limit_and_leaves_a_short_one) {
    EXPECT_EQ(clip(9, 1, 0, 1.5).norm, 3.f);
    EXPECT_EQ(clip(9, 1, 0, 1.5).scale, 0.5f);
    EXPECT_EQ(clip(9, 1, 0, 3).scale, 1.f);
    EXPECT_EQ(clip(9, 1, 0, 4).scale, 1.f);
    EXPECT_EQ(clip(0, 1, 0, 4).scale, 1.f);
}

TEST(clip, zero_means_no_limit) {
    EXPECT_EQ(clip(1e12, 1, 0, 0).scale, 1.f);
}

TEST(clip, skips_what_is_not_finite) {
    for (double bad : {kInf, -kInf, std::nan("")}) {
        EXPECT_EQ(clip(bad, 1, 0, 1).scale, 0.f);
        EXPECT_TRUE(std::isnan(clip(bad, 1, 0, 1).norm));
        EXPECT_EQ(clip(4, bad, 0, 1).scale, 0.f);
        EXPECT_EQ(clip(4, bad, 0, 1).norm, 2.f);  // the gradient itself is fine
    }
}

TEST(clip, an_addend_out_of_range_skips_once) {
    const Clipped c = clip(4, 1, 1, 1);
    EXPECT_EQ(c.scale, 0.f);
    EXPECT_TRUE(std::isnan(c.norm));
    EXPECT_EQ(c.flag, 0);
}
