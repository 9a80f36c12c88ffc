#include "llmc/ops/rope.h"

#include "llmc/ops/op_test.h"

namespace {
constexpr int B = 2, T = 5, H = 3, KV = 1, HS = 6, kRow = (H + 2 * KV) * HS;
const RopeScaling kPlain;

Buffer table_of(double theta = 10000, int first = 0) {
    Buffer table(T * HS);
    rope_table(table, first, T, HS, theta, kPlain);
    return table;
}
}  // namespace

TEST(rope, turns_queries_and_keys_by_position_and_leaves_values) {
    for (RopePairs pairs : {RopePairs::Half, RopePairs::Interleaved}) {
        const Buffer before = random_buffer(B * T * kRow, "qkv");
        Buffer x = before;
        rope(x, table_of(), B, T, H, KV, HS, pairs, 1, CpuStream{});
        for (int row = 0; row < B * T; row++) {
            for (int h = 0; h < H + 2 * KV; h++) {
                for (int i = 0; i < HS / 2; i++) {
                    const int head = row * kRow + h * HS;
                    const int a = head + (pairs == RopePairs::Half ? i : 2 * i);
                    const int b = pairs == RopePairs::Half ? a + HS / 2 : a + 1;
                    const double angle = h < H + KV ? row % T * std::pow(10000., -2. * i / HS) : 0;
                    const double size = std::fabs(before[a]) + std::fabs(before[b]);
                    EXPECT_NEAR(x[a], before[a] * std::cos(angle) - before[b] * std::sin(angle),
                                3 * kEps * size);
                    EXPECT_NEAR(x[b], before[a] * std::sin(angle) + before[b] * std::cos(angle),
                                3 * kEps * size);
                }
            }
        }
    }
}

TEST(rope, backward_is_the_derivative) {
    for (RopePairs pairs : {RopePairs::Half, RopePairs::Interleaved}) {
        Buffer x = grid_buffer(B * T * kRow, "qkv");
        const Buffer dy = random_buffer(B * T * kRow, "dy"), table = table_of();
        Buffer dx = dy;
        rope(dx, table, B, T, H, KV, HS, pairs, -1, CpuStream{});
        expect_derivative("dx", x, dx, [&] {
            Buffer y = x;
            rope(y, table, B, T, H, KV, HS, pairs, 1, CpuStream{});
            return inner(y, dy);
        });
    }
}

// What attention sees, q[t] . k[u], depends on t - u alone.
TEST(rope, products_depend_on_the_distance) {
    const Buffer q = random_buffer(HS, "q"), k = random_buffer(HS, "k");
    const auto product = [&](int t, int u) {
        Buffer turned(2 * 3 * HS), at(2 * HS);  // one row each: q and k of one head, and a value
        std::copy_n(q.data(), HS, turned.data());
        std::copy_n(k.data(), HS, turned + 4 * HS);
        for (int row : {0, 1}) {
            rope_table(at, row ? u : t, 1, HS, 10000, kPlain);
            rope(turned + row * 3 * HS, at, 1, 1, 1, 1, HS, RopePairs::Half, 1, CpuStream{});
        }
        double sum = 0;
        for (int i = 0; i < HS; i++) sum += double(turned[i]) * turned[4 * HS + i];
        return sum;
    };
    EXPECT_NEAR(product(3, 1), product(1002, 1000), 1e-5);
    EXPECT_GT(std::fabs(product(3, 1) - product(3, 2)), 1e-3);
}

// Table entries of LLaMA 3.1's stretching at its own sizes: short waves stay, long ones are 8 times
// longer, and what lies between is in order.
TEST(rope, stretches_long_waves_only) {
    const RopeScaling scaling{8, 1, 4, 8192};
    const double theta = 500000;
    double last = 2;
    for (int i = 0; i < 64; i++) {
        const double plain = rope_frequency(i, 128, theta, kPlain);
        const double f = rope_frequency(i, 128, theta, scaling);
        const double wavelength = 2 * std::numbers::pi / plain;
        if (wavelength < 8192 / 4.) {
            EXPECT_EQ(f, plain) << i;
        }
        if (wavelength > 8192 / 1.) {
            EXPECT_NEAR(f, plain / 8, 1e-15) << i;
        }
        EXPECT_LT(f, last);
        last = f;
    }
}
