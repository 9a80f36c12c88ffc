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
            accumulate_fixed(gacc, gx, grad_limit(1), gbad, n, kCuda);
            int bad = 0;
            accumulate_fixed(acc.data(), x.data(), grad_limit(1), &bad, n, kCpu);
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
    for (int addends : {1, 24}) {
        const float limit = grad_limit(addends), below = std::nextafter(limit, 0.f);
        for (float value : {NAN, INFINITY, -limit, limit, below, -below})
            for (size_t at : {0, 1, 2}) {
                Floats x(3, 1.f);
                x[at] = value;
                // A negative sum that takes a large addend back into range changes nothing.
                std::vector<int64_t> acc(3, -(int64_t(1) << 61));
                Device<int64_t> gacc(acc);
                Device<float> gx(x);
                Device<int> gbad(std::vector<int>{0});
                int bad = 0;
                accumulate_fixed(gacc, gx, limit, gbad, 3, kCuda);
                accumulate_fixed(acc.data(), x.data(), limit, &bad, 3, kCpu);
                EXPECT_EQ(gbad.host()[0], bad) << value << " at " << at;
                EXPECT_EQ(bad, std::fabs(value) == below ? 0 : 1) << value << " at " << at;
                EXPECT_TRUE(same_bits(gacc.host(), acc)) << value << " at " << at;
            }
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
