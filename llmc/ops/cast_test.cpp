// cast.h: the ties between neighbours, and what lies beyond the largest bf16.
#include "llmc/ops/cast.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

TEST(cast, rounds_to_nearest_and_ties_to_even) {
    // 1 + 2^-8 lies half way between the neighbours 1 and 1 + 2^-7; 1 + 3 * 2^-8 likewise above it.
    const std::vector<float> x = {1 + 0x1p-8f,
                                  1 + 3 * 0x1p-8f,
                                  1 + 0x1.02p-8f,
                                  1 + 0x1.fep-9f,
                                  -1 - 0x1p-8f,
                                  0x1.fffp127f,
                                  -std::nextafterf(INFINITY, 0.f)};
    const std::vector<float> expected = {1, 1 + 0x1p-6f, 1 + 0x1p-7f, 1, -1, INFINITY, -INFINITY};
    std::vector<bf16> y(x.size());
    cast(y.data(), x.data(), x.size(), CpuStream{});
    for (size_t i = 0; i < x.size(); i++) EXPECT_EQ(to_float(y[i]), expected[i]) << x[i];
}
