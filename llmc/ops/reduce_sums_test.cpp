#include "llmc/ops/reduce_sums.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "llmc/ops/op_test.h"

namespace {
bool operator==(const FixedSum& a, const FixedSum& b) {
    return a.hi == b.hi && a.mid == b.mid && a.lo == b.lo && a.bad == b.bad;
}
FixedSum squares(const Buffer& x, size_t first, size_t n) {
    FixedSum sum;
    sum_of_squares(&sum, x + first, n, CpuStream{});
    return sum;
}
}  // namespace

TEST(fixed_sum, holds_numbers_of_all_sizes_exactly) {
    for (double x : {0., 1., -1., 0x1p-80, -0x1p-80, 3.25, -1e-20 + 1, 0x1p50 + 1, -0x1p63, 1e19}) {
        FixedSum sum;
        fixed_sum_add(sum, x);
        const double exact = std::rint(x * 0x1p80) * 0x1p-80;  // no rounding above 2^-28
        EXPECT_EQ(fixed_sum_value(sum), exact) << x;
        fixed_sum_add(sum, -x);
        EXPECT_TRUE(sum == FixedSum{}) << x;
    }
    FixedSum sum;
    fixed_sum_add(sum, 0x1p62);
    fixed_sum_add(sum, 0x1p-70);
    fixed_sum_add(sum, -0x1p62);
    EXPECT_EQ(fixed_sum_value(sum), 0x1p-70);  // 132 bits apart
}

TEST(fixed_sum, does_not_depend_on_order_or_cut) {
    std::mt19937 random(1);
    std::vector<double> x(5000);
    for (double& v : x) v = std::ldexp(double(int32_t(random())), int(random() % 100) - 90);
    const auto sum_of = [](const std::vector<double>& values, int parts) {
        std::vector<FixedSum> part(parts);
        for (size_t i = 0; i < values.size(); i++)
            fixed_sum_add(part[i * parts / values.size()], values[i]);
        FixedSum total;
        for (const FixedSum& p : part) fixed_sum_add(total, p);
        return total;
    };
    const FixedSum want = sum_of(x, 1);
    for (int parts : {2, 3, 8, 8192}) {
        std::shuffle(x.begin(), x.end(), random);
        EXPECT_TRUE(sum_of(x, parts) == want) << parts;
    }
    // As an all-reduce does it: the words of 8192 ranks as plain integers, then the value.
    FixedSum plain;
    for (int rank = 0; rank < 8192; rank++) {
        plain.hi += want.hi;
        plain.mid += want.mid;
        plain.lo += want.lo;
    }
    EXPECT_EQ(fixed_sum_value(plain), 8192 * fixed_sum_value(want));
}

TEST(fixed_sum, counts_what_it_cannot_hold) {
    for (double bad : {double(NAN), double(INFINITY), -double(INFINITY), 0x1p64, -1e300}) {
        for (bool first : {true, false}) {
            FixedSum sum;
            if (first) fixed_sum_add(sum, bad);
            fixed_sum_add(sum, 1.);
            if (!first) fixed_sum_add(sum, bad);
            EXPECT_EQ(sum.bad, 1);
            EXPECT_TRUE(std::isnan(fixed_sum_value(sum)));
            FixedSum other;
            fixed_sum_add(other, sum);
            EXPECT_EQ(other.bad, 1);
        }
    }
    // 2^70 is out of range, one 2^63 less is not.
    FixedSum sum;
    for (int i = 0; i < 127; i++) fixed_sum_add(sum, 0x1p63);
    EXPECT_EQ(fixed_sum_value(sum), 127 * 0x1p63);
    fixed_sum_add(sum, 0x1p63);
    EXPECT_TRUE(std::isnan(fixed_sum_value(sum)));
    // Nor are two ranks' sums that are in range each.
    FixedSum one, two;
    for (int i = 0; i < 64; i++) fixed_sum_add(i % 2 ? one : two, 0x1p63);
    EXPECT_EQ(fixed_sum_value(one), 0x1p68);
    for (int i = 0; i < 32; i++) fixed_sum_add(one, 0x1p63), fixed_sum_add(two, 0x1p63);
    one.hi += two.hi, one.mid += two.mid, one.lo += two.lo;
    EXPECT_EQ(one.bad, 0);
    EXPECT_TRUE(std::isnan(fixed_sum_value(one)));
}

TEST(sum_of_squares, is_the_sum_and_ignores_threads_and_cuts_at_chunks) {
    for (size_t n : {1, 63, 64, 65, 1000, 100003}) {
        const Buffer x = random_buffer(n, "x");
        const FixedSum whole = squares(x, 0, n);
        const double want = inner(x, x);
        EXPECT_NEAR(fixed_sum_value(whole), want, want * n * 0x1p-53) << n;
        expect_same_bits_on_any_threads(
            [&] { return Buffer(1, float(fixed_sum_value(squares(x, 0, n)))); });
        for (size_t chunks : {1, 3, 10}) {
            FixedSum sum;
            for (size_t i = 0; i < n; i += chunks * kSumChunk) {
                const FixedSum part = squares(x, i, std::min(chunks * kSumChunk, n - i));
                fixed_sum_add(sum, part);
            }
            EXPECT_TRUE(sum == whole) << n << " in slices of " << chunks;
        }
    }
    Buffer x(300, 1.f);
    x[299] = kNan;
    EXPECT_GT(squares(x, 0, 300).bad, 0);
    x[299] = 1e30f;
    EXPECT_GT(squares(x, 0, 300).bad, 0);
    x[299] = 1e9f;  // a large gradient is not a bad one
    EXPECT_EQ(squares(x, 0, 300).bad, 0);
}

TEST(sum_of_elements, adds_each_element_exactly) {
    Buffer x(1000);
    for (size_t i = 0; i < 1000; i++) x[i] = 1.f + 0x1p-23f * float(i);
    FixedSum sum, pieces;
    sum_of_elements(&sum, x, 1000, CpuStream{});
    EXPECT_EQ(fixed_sum_value(sum), 1000 + 0x1p-23 * 999 * 500);
    for (size_t i = 0; i < 1000; i += 7)
        sum_of_elements(&pieces, x + i, std::min<size_t>(7, 1000 - i), CpuStream{});
    EXPECT_TRUE(sum == pieces);
}

TEST(accumulate_fixed, adds_512_gradients_of_1_plus_a_little_exactly) {
    const size_t n = 5;
    std::vector<int64_t> acc(n);
    int bad = 0;
    for (int step = 0; step < 512; step++) {
        Buffer x(n, 1.f + 0x1p-10f);
        accumulate_fixed(acc.data(), x, grad_limit(512), &bad, n, CpuStream{});
        EXPECT_TRUE(x == Buffer(n));
    }
    Buffer sum(n, kNan);
    fixed_to_float(sum, acc.data(), n, CpuStream{});
    EXPECT_TRUE(sum == Buffer(n, 512.5f));
    EXPECT_EQ(acc, std::vector<int64_t>(n, int64_t(512.5 * 0x1p44)));  // still there
    EXPECT_EQ(bad, 0);
}

TEST(accumulate_fixed, gives_the_same_bits_in_any_order) {
    const size_t n = 77;
    std::vector<int> order(24);
    std::iota(order.begin(), order.end(), 0);
    std::mt19937 random(7);
    Buffer first(n);
    for (int attempt = 0; attempt < 4; attempt++) {
        std::vector<int64_t> acc(n);
        int bad = 0;
        for (int i : order) {
            Buffer x = random_buffer(n, str("g", i).c_str(), std::ldexp(1.f, i - 14));
            accumulate_fixed(acc.data(), x, grad_limit(24), &bad, n, CpuStream{});
        }
        Buffer sum(n);
        fixed_to_float(sum, acc.data(), n, CpuStream{});
        if (attempt == 0) first = sum;
        EXPECT_TRUE(sum == first);
        EXPECT_EQ(bad, 0);
        std::shuffle(order.begin(), order.end(), random);
    }
    // Against double: each of the 24 addends is off by half a unit of 2^-44 at most.
    for (size_t i = 0; i < n; i++) {
        double want = 0;
        for (int k : order)
            want += random_buffer(n, str("g", k).c_str(), std::ldexp(1.f, k - 14))[i];
        EXPECT_NEAR(first[i], want, 24 * 0x1p-45 + kEps * std::fabs(want));
    }
}

TEST(accumulate_fixed, rounds_ties_to_even_and_flags_what_does_not_fit) {
    const float values[] = {0x1p-45f, 3 * 0x1p-45f, -0x1p-45f, 0x1p18f - 0x1p-5f};
    const int64_t want[] = {0, 2, 0, ((int64_t(1) << 23) - 1) << 39};
    for (int i = 0; i < 4; i++) {
        int64_t acc = 0;
        int bad = 0;
        float x = values[i];
        accumulate_fixed(&acc, &x, grad_limit(1), &bad, 1, CpuStream{});
        EXPECT_EQ(acc, want[i]) << i;
        EXPECT_EQ(bad, 0) << i;
    }
    for (float value : {kNan, INFINITY, -INFINITY, 0x1p18f, -1e30f}) {
        for (size_t place : {0, 8, 18}) {
            std::vector<int64_t> acc(19, 5);
            int bad = 0;
            Buffer x(19);
            x[place] = value;
            accumulate_fixed(acc.data(), x, grad_limit(1), &bad, 19, CpuStream{});
            EXPECT_EQ(bad, 1);
            EXPECT_TRUE(x == Buffer(19)) << "the gradient is zeroed even so";
        }
    }
}

// Each addend by itself, so that the order cannot matter: 24 of the largest fit, and one unit in
// the last place more is too much, whatever is there already.
TEST(accumulate_fixed, has_a_limit_for_so_many_addends) {
    for (int addends : {1, 2, 24, 1000}) {
        const float limit = grad_limit(addends), below = std::nextafter(limit, 0.f);
        for (float sign : {1.f, -1.f}) {
            int64_t acc = 0;
            int bad = 0;
            for (int i = 0; i < addends; i++) {
                float x = sign * below;
                accumulate_fixed(&acc, &x, limit, &bad, 1, CpuStream{});
            }
            EXPECT_EQ(bad, 0) << addends;
            EXPECT_LT(std::abs(acc), int64_t(1) << 62);
            EXPECT_GT(double(acc) * double(sign), 0x1p62 * (1 - 0x1p-20)) << addends;
            float x = -sign * limit;
            accumulate_fixed(&acc, &x, limit, &bad, 1, CpuStream{});
            EXPECT_EQ(bad, 1) << addends;
        }
    }
}

TEST(accumulate_float, adds_and_clears) {
    for (size_t n : {1, 7, 1001}) {
        const Buffer a = random_buffer(n, "a"), b = random_buffer(n, "b");
        Buffer acc = a, x = b;
        accumulate_float(acc, x, n, CpuStream{});
        for (size_t i = 0; i < n; i++) EXPECT_EQ(acc[i], a[i] + b[i]) << i;
        EXPECT_TRUE(x == Buffer(n));
    }
}
