// reduce_sums.h on CUDA: the CPU's bits, always.
#include "llmc/ops/reduce_sums.h"

#include "llmc/ops/cuda_test.cuh"

namespace {

void expect_equal(const FixedSum& found, const FixedSum& expected) {
    EXPECT_EQ(found.hi, expected.hi);
    EXPECT_EQ(found.mid, expected.mid);
    EXPECT_EQ(found.lo, expected.lo);
    EXPECT_EQ(found.bad, expected.bad);
}

// Magnitudes over 80 powers of two, and both signs.
Floats wide_range(size_t n, const char* name) {
    Floats x = random_elems<float>(n, name);
    for (size_t i = 0; i < n; i++) x[i] = std::ldexp(x[i], int(random_bits(2, 3, i) % 50) - 25);
    return x;
}

FixedSum on_cuda(void (*op)(FixedSum*, const float*, size_t, CudaStream), const FixedSum& start,
                 const Floats& x, size_t shift) {
    Device<FixedSum> sum(std::vector<FixedSum>{start});
    const Device<float> gx(x, shift);
    op(sum, gx, x.size(), kCuda);
    return sum.host()[0];
}

}  // namespace

TEST(reduce_sums_cuda, sums_have_the_bits_of_the_cpu) {
    for (size_t n : {1, 7, 63, 64, 65, 2048, 2049, 40003})
        for (size_t shift : {0, 1}) {
            SCOPED_TRACE(str("n ", n, ", shifted by ", shift));
            const Floats x = wide_range(n, "x");
            FixedSum start, squares, elements;
            fixed_sum_add(start, 3.25);
            squares = elements = start;
            sum_of_squares(&squares, x.data(), n, kCpu);
            sum_of_elements(&elements, x.data(), n, kCpu);
            expect_equal(on_cuda(sum_of_squares, start, x, shift), squares);
            expect_equal(on_cuda(sum_of_elements, start, x, shift), elements);
        }
}

TEST(reduce_sums_cuda, bad_addends_are_counted) {
    Floats x = wide_range(1000, "x");
    x[3] = NAN, x[200] = INFINITY, x[201] = 1e30f;  // 200 and 201 lie in one chunk of squares
    FixedSum squares, elements;
    sum_of_squares(&squares, x.data(), x.size(), kCpu);
    sum_of_elements(&elements, x.data(), x.size(), kCpu);
    EXPECT_EQ(squares.bad, 2);
    EXPECT_EQ(elements.bad, 3);
    expect_equal(on_cuda(sum_of_squares, {}, x, 0), squares);
    expect_equal(on_cuda(sum_of_elements, {}, x, 0), elements);
}

TEST(reduce_sums_cuda, accumulation_has_the_bits_of_the_cpu) {
    for (size_t n : {1, 2, 511, 512, 1025})
        for (size_t shift : {0, 1}) {
            SCOPED_TRACE(str("n ", n, ", shifted by ", shift));
            Floats x = wide_range(n, "x");
            for (float& v : x) v = std::ldexp(v, -12);  // in range
            x[0] = 0x1.8p-44f;                          // a tie: to even
            std::vector<int64_t> acc(n);
            for (size_t i = 0; i < n; i++) acc[i] = int64_t(random_bits(5, 6, i)) >> 4;
            Device<int64_t> gacc(acc, shift);
            Device<float> gx(x, shift);
            Device<int> gbad(std::vector<int>{0});
            accumulate_fixed(gacc, gx, gbad, n, kCuda);
            int bad = 0;
            accumulate_fixed(acc.data(), x.data(), &bad, n, kCpu);
            EXPECT_EQ(bad, 0);
            EXPECT_EQ(gbad.host()[0], 0);
            EXPECT_TRUE(same_bits(gacc.host(), acc));
            EXPECT_TRUE(same_bits(gx.host(), Floats(n, 0.f)));

            fixed_to_float(gx, gacc, n, kCuda);
            fixed_to_float(x.data(), acc.data(), n, kCpu);
            EXPECT_TRUE(same_bits(gx.host(), x));
            EXPECT_TRUE(same_bits(gacc.host(), acc));
        }
}

TEST(reduce_sums_cuda, what_is_out_of_range_is_reported) {
    for (float value : {NAN, INFINITY, -0x1p18f})
        for (size_t at : {0, 1, 2}) {
            Floats x(3, 1.f);
            x[at] = value;
            Device<int64_t> acc(std::vector<int64_t>(3, 0));
            Device<float> gx(x);
            Device<int> bad(std::vector<int>{0});
            accumulate_fixed(acc, gx, bad, 3, kCuda);
            EXPECT_EQ(bad.host()[0], 1) << value << " at " << at;
        }
    // A sum at 2^62 is reported before anything wraps.
    Device<int64_t> acc(std::vector<int64_t>{(int64_t(1) << 62) - 5});
    Device<float> x(Floats{1.f});
    Device<int> bad(std::vector<int>{0});
    accumulate_fixed(acc, x, bad, 1, kCuda);
    EXPECT_EQ(bad.host()[0], 1);

    // So is an addend of 2^18 that a negative sum takes back into range.
    Device<int64_t> low(std::vector<int64_t>{-(int64_t(1) << 62) + 5});
    Device<float> large(Floats{0x1p18f});
    Device<int> flag(std::vector<int>{0});
    accumulate_fixed(low, large, flag, 1, kCuda);
    EXPECT_EQ(flag.host()[0], 1);
}

// Each of 8 ranks may hold an eighth of the range, so that their integers add up without wrapping.
TEST(reduce_sums_cuda, a_rank_has_its_share_of_the_range) {
    const int64_t full = int64_t(1) << 62;
    for (int ranks : {1, 8})
        for (int64_t value : {full / ranks - 1, full / ranks, -(full / ranks - 1), -full / ranks})
            for (size_t at : {0, 299}) {
                std::vector<int64_t> acc(300, 0);
                acc[at] = value;
                const Device<int64_t> gacc(acc);
                Device<int> gbad(std::vector<int>{0});
                int bad = 0;
                fixed_check(gacc, ranks, gbad, acc.size(), kCuda);
                fixed_check(acc.data(), ranks, &bad, acc.size(), kCpu);
                EXPECT_EQ(gbad.host()[0], bad) << value << " of " << ranks << " ranks";
                EXPECT_EQ(bad, std::abs(value) == full / ranks);
            }
}

TEST(reduce_sums_cuda, float_accumulation_has_the_bits_of_the_cpu) {
    for (size_t n : {1, 255, 257, 1025})
        for (size_t shift : {0, 1}) {
            Floats acc = wide_range(n, "acc"), x = wide_range(n, "x");
            Device<float> gacc(acc, shift), gx(x, shift);
            accumulate_float(gacc, gx, n, kCuda);
            accumulate_float(acc.data(), x.data(), n, kCpu);
            EXPECT_TRUE(same_bits(gacc.host(), acc)) << n;
            EXPECT_TRUE(same_bits(gx.host(), Floats(n, 0.f))) << n;
        }
}
