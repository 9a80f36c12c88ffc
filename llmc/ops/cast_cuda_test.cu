// cast.h on CUDA: the CPU's bits for every bf16 and for floats around the ties.
#include "llmc/ops/cast.h"

#include "llmc/ops/cuda_test.cuh"

TEST(cast_cuda, widens_every_bf16_exactly) {
    Elems<bf16> x(65536);
    for (int i = 0; i < 65536; i++) x[i] = {uint16_t(i)};
    const Device<bf16> dx(x);
    Device<float> dy(x.size());
    cast(dy, dx, x.size(), kCuda);
    Floats expected(x.size());
    cast(expected.data(), x.data(), x.size(), kCpu);
    const Floats y = dy.host();
    for (size_t i = 0; i < y.size(); i++) {
        if (std::isnan(expected[i]))
            EXPECT_TRUE(std::isnan(y[i])) << i;
        else
            EXPECT_EQ(y[i], expected[i]) << i;
    }
}

TEST(cast_cuda, rounds_as_the_cpu_at_any_size_and_alignment) {
    for (size_t n : {1, 3, 4, 5, 1023, 1024, 1025})
        for (size_t shift : {0, 1, 2}) {
            Floats x(n);
            for (size_t i = 0; i < n; i++) {
                // Upper half arbitrary but finite, lower half at, below and above the tie.
                const uint32_t high = uint32_t(random_bits(1, name_hash("cast"), i)) & 0xbf7f0000u;
                x[i] = std::bit_cast<float>(high | (i % 3 == 0   ? 0x8000u
                                                    : i % 3 == 1 ? 0x7fffu
                                                                 : 0x8001u));
            }
            const Device<float> dx(x, shift);
            Device<bf16> dy(n, shift);
            cast(dy, dx, n, kCuda);
            Elems<bf16> expected(n);
            cast(expected.data(), x.data(), n, kCpu);
            EXPECT_TRUE(same_bits(dy.host(), expected)) << n << " shifted by " << shift;
        }
}
