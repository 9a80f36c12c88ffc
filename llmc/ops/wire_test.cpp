// 16-bit gradients: the scale at both ends of fp32, and the error of a sum over ranks against its
// derived bound.
#include "llmc/ops/wire.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "llmc/core/dtype.h"
#include "llmc/core/rng.h"
#include "llmc/ops/wire_format.h"

namespace {
constexpr CpuStream kCpu{};
constexpr float kInf = std::numeric_limits<float>::infinity();

int32_t most_of(const std::vector<float>& x) {
    int32_t most = 0;
    wire_most(&most, x.data(), x.size(), kCpu);
    return most;
}
int32_t bits_of(float x) {
    return std::bit_cast<int32_t>(x);
}
}  // namespace

TEST(wire, the_largest_counts_nan_above_infinity_above_numbers) {
    EXPECT_EQ(most_of({0.f, -3.f, 2.f}), bits_of(3.f));
    EXPECT_EQ(most_of({-0.f}), 0);
    EXPECT_EQ(most_of({1.f, -kInf, 3e38f}), bits_of(kInf));
    EXPECT_GT(most_of({kInf, std::nanf("")}), bits_of(kInf));
}

// What all ranks send and their sum are at most ranks * most, which must be below 65520, where fp16
// rounds to infinity, and above 2^13, so that little is lost at the other end.
TEST(wire, the_scale_puts_the_largest_sum_below_the_largest_fp16) {
    for (int ranks : {1, 2, 3, 4, 7, 8, 1000})
        for (float most : {1e-30f, 2e-6f, 0.9999999f, 1.f, 1e5f, 1e30f, 3.4e38f}) {
            const double sum =
                std::ldexp(double(most), wire_scale_exponent(bits_of(most), ranks)) * ranks;
            EXPECT_LE(sum, 0x1p15) << most << " on " << ranks;
            EXPECT_GT(sum, 0x1p13) << most << " on " << ranks;
        }
    for (float most : {0.f, kInf, std::nanf("")})
        EXPECT_EQ(wire_scale_exponent(bits_of(most), 4), 0);
}

// Rank r sends x_r; the owner adds the N rounded values in fp32, and rounds the total S once more.
// One rounding is at most u |x| + t: u = 2^-8 and t = 0 for bf16, u = 2^-11 and t = 2^-25 2^-k for
// fp16. N - 1 additions err by less than 2 (N-1) 2^-24 times the sum of the |rounded| (which are at
// most (1 + u) |x| + t). Together
//     (u + 2 (N-1) 2^-24) A + N t + u (|S| + that) + t,   A = sum of |x_r|.
TEST(wire, a_sum_over_ranks_is_within_its_bound_at_any_magnitude) {
    const size_t n = 1003;
    for (Wire wire : {Wire::Bf16, Wire::Fp16})
        for (int ranks : {1, 2, 4, 7})
            for (float size : {1e5f, 1.f, 2e-6f, 1e-20f}) {
                std::vector<std::vector<float>> x;
                for (int r = 0; r < ranks; r++) x.emplace_back(n);
                int32_t most = 0;
                for (int r = 0; r < ranks; r++) {
                    random_normal(x[size_t(r)].data(), n, 0, 0, size, 5, uint64_t(r));
                    wire_most(&most, x[size_t(r)].data(), n, kCpu);
                }
                std::vector<uint16_t> y(n);
                std::vector<float> sum(n), total(n);
                for (const auto& rank : x) {
                    wire_pack(y.data(), rank.data(), n, wire, &most, ranks, kCpu);
                    wire_add(sum.data(), y.data(), n, wire, &most, ranks, kCpu);
                }
                wire_pack(y.data(), sum.data(), n, wire, &most, ranks, kCpu);
                wire_unpack(total.data(), y.data(), n, wire, &most, ranks, kCpu);

                const int k = wire_scale_exponent(most, ranks);
                const double u = wire == Wire::Bf16 ? 0x1p-8 : 0x1p-11;
                const double t = wire == Wire::Bf16 ? 0 : std::ldexp(0x1p-25, -k);
                double squares = 0, norm = 0;
                for (size_t i = 0; i < n; i++) {
                    double exact = 0, A = 0;
                    for (const auto& rank : x) exact += rank[i], A += std::fabs(double(rank[i]));
                    const double first = (u + 2 * (ranks - 1) * 0x1p-24) * A + ranks * t;
                    const double bound = first + u * (std::fabs(exact) + first) + t;
                    ASSERT_NEAR(total[i], exact, bound)
                        << int(wire) << ", " << ranks << " ranks, " << size;
                    squares += (total[i] - exact) * (total[i] - exact), norm += exact * exact;
                }
                // And it is no trivial one: the whole is right to a few roundings.
                EXPECT_LT(std::sqrt(squares / norm), 3 * u) << int(wire) << ", " << size;
            }
}

TEST(wire, what_is_no_number_stays_none) {
    for (Wire wire : {Wire::Bf16, Wire::Fp16})
        for (float bad : {std::nanf(""), kInf, -kInf}) {
            const std::vector<float> x = {1.f, bad, -2.f};
            const int32_t most = most_of(x);
            std::vector<uint16_t> y(3);
            std::vector<float> back(3);
            wire_pack(y.data(), x.data(), 3, wire, &most, 2, kCpu);
            wire_unpack(back.data(), y.data(), 3, wire, &most, 2, kCpu);
            EXPECT_EQ(back[0], 1.f);
            EXPECT_FALSE(std::isfinite(back[1]));
            EXPECT_EQ(std::isnan(back[1]), std::isnan(bad));
            EXPECT_EQ(back[2], -2.f);
        }
}
