// wire.h on CUDA: the CPU's bits, for every kind of number.
#include "llmc/ops/cuda_test.cuh"
#include "llmc/ops/wire.h"

namespace {
// Normal numbers over 60 powers of two, ties, zeros of both signs; and where asked for no numbers.
Floats numbers(size_t n, bool finite) {
    Floats x = random_elems<float>(n, "x");
    for (size_t i = 0; i < n; i++) x[i] = std::ldexp(x[i], int(random_bits(4, 5, i) % 60) - 40);
    if (n > 8) x[2] = 0.f, x[3] = -0.f, x[5] = 1.f + 0x1p-8f, x[6] = 1.f + 0x1p-11f;
    if (n > 8 && !finite) x[1] = NAN, x[4] = INFINITY, x[7] = -INFINITY;
    return x;
}
}  // namespace

TEST(wire_cuda, has_the_bits_of_the_cpu) {
    for (Wire wire : {Wire::Bf16, Wire::Fp16})
        for (size_t n : {1, 3, 4, 257, 1025})
            for (bool finite : {true, false})
                for (size_t shift : {0, 1}) {
                    SCOPED_TRACE(
                        str("wire ", int(wire), ", n ", n, ", ", finite, ", shift ", shift));
                    const Floats x = numbers(n, finite);
                    const Device<float> gx(x, shift);
                    Device<int32_t> gmost(std::vector<int32_t>{0});
                    int32_t most = 0;
                    wire_most(gmost, gx, n, kCuda);
                    wire_most(&most, x.data(), n, kCpu);
                    ASSERT_EQ(gmost.host()[0], most);

                    Device<uint16_t> gy(n, shift);
                    std::vector<uint16_t> y(n);
                    wire_pack(gy, gx, n, wire, gmost, 3, kCuda);
                    wire_pack(y.data(), x.data(), n, wire, &most, 3, kCpu);
                    EXPECT_TRUE(same_bits(gy.host(), y));

                    Floats back(n), sum = random_elems<float>(n, "sum");
                    Device<float> gback(n, shift), gsum(sum, shift);
                    wire_unpack(gback, gy, n, wire, gmost, 3, kCuda);
                    wire_unpack(back.data(), y.data(), n, wire, &most, 3, kCpu);
                    EXPECT_TRUE(same_bits(gback.host(), back));
                    wire_add(gsum, gy, n, wire, gmost, 3, kCuda);
                    wire_add(sum.data(), y.data(), n, wire, &most, 3, kCpu);
                    // A NaN's bits may differ.
                    const Floats found = gsum.host();
                    for (size_t i = 0; i < n; i++)
                        if (std::isnan(sum[i]))
                            EXPECT_TRUE(std::isnan(found[i])) << i;
                        else
                            EXPECT_EQ(found[i], sum[i]) << i;
                }
}

TEST(wire_cuda, the_largest_is_kept) {
    Device<int32_t> most(std::vector<int32_t>{0x40000000});  // 2.f
    const Device<float> x(Floats{1.f, -1.5f});
    wire_most(most, x, 2, kCuda);
    EXPECT_EQ(most.host()[0], 0x40000000);
}
