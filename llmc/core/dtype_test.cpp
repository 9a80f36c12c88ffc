// 16-bit floating point: every number of the formats, and what lies between two of them.
#include "llmc/core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

static constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(dtype, every_bf16_comes_back) {
    for (uint32_t y = 0; y < 0x10000; y++) {
        const float x = to_float(bf16{uint16_t(y)});
        if ((y & 0x7fff) > 0x7f80)
            EXPECT_TRUE(std::isnan(to_float(to_bf16(x)))) << y;
        else
            ASSERT_EQ(to_bf16(x).bits, y);
    }
}

// The value of an fp16 by its definition.
static double fp16_value(uint16_t y) {
    const int exponent = y >> 10 & 31, fraction = y & 1023;
    const double size = exponent == 0    ? std::ldexp(fraction, -24)
                        : exponent == 31 ? (fraction ? std::nan("") : double(kInf))
                                         : std::ldexp(1024 + fraction, exponent - 25);
    return y & 0x8000 ? -size : size;
}

TEST(dtype, every_fp16_comes_back) {
    for (uint32_t y = 0; y < 0x10000; y++) {
        const float x = from_fp16(uint16_t(y));
        const double want = fp16_value(uint16_t(y));
        if (std::isnan(want)) {
            EXPECT_TRUE(std::isnan(x));
            EXPECT_TRUE(std::isnan(from_fp16(to_fp16(x))));
        } else {
            ASSERT_EQ(x, want) << y;
            ASSERT_EQ(to_fp16(x), y);
        }
    }
}

// Between two neighbours the nearest one wins, in the middle the even one.
TEST(dtype, fp16_is_rounded_to_nearest_ties_to_even) {
    for (uint16_t y = 0; y < 0x7bff; y++) {
        const float low = from_fp16(y), high = from_fp16(uint16_t(y + 1));
        const float middle = (low + high) / 2;  // exact: 12 bits
        ASSERT_EQ(to_fp16(middle), y % 2 ? y + 1 : y) << y;
        ASSERT_EQ(to_fp16(std::nextafter(middle, 0.f)), y) << y;
        ASSERT_EQ(to_fp16(std::nextafter(middle, kInf)), y + 1) << y;
        ASSERT_EQ(to_fp16(-middle), (y % 2 ? y + 1 : y) | 0x8000) << y;
    }
    EXPECT_EQ(to_fp16(65519.f), 0x7bff);
    for (float x : {65520.f, 65536.f, 1e30f, kInf}) EXPECT_EQ(to_fp16(x), 0x7c00) << x;
}
