// Tests of the device-side headers: launch, packed accesses, warp and block reductions.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "llmc/core/launch.cuh"
#include "llmc/core/packed.cuh"
#include "llmc/core/rng.h"
#include "llmc/ops/cuda_test.cuh"

namespace {

// One thread a packet: y = 2 x, rounded to the element type.
template <class Elem>
__global__ void double_kernel(Elem* y, const Elem* x, int n) {
    const int i = int(blockIdx.x * blockDim.x + threadIdx.x) * Packed128<Elem>::size;
    if (i >= n) return;
    Packed128<Elem> v = load128_streaming(x + i);
    for (int k = 0; k < v.size; k++) v[k] = as_elem<Elem>(2 * as_float(v[k]));
    store128(y + i, v);
}

template <class Elem>
void check_double() {
    const int n = 8 * 77;
    std::vector<Elem> x(n);
    for (int i = 0; i < n; i++) x[i] = to_elem<Elem>(float(i - 300) * 0.37f);
    Device<Elem> dx(x), dy(n);
    launch(double_kernel<Elem>, ceil_div(n, 128 * Packed128<Elem>::size), 128, 0, kCuda,
           static_cast<Elem*>(dy), static_cast<const Elem*>(dx), n);
    const std::vector<Elem> y = dy.host();
    for (int i = 0; i < n; i++) ASSERT_EQ(to_float(y[i]), 2 * to_float(x[i])) << i;
}
TEST(packed, moves_and_converts_fp32) {
    check_double<float>();
}
TEST(packed, moves_and_converts_bf16) {
    check_double<bf16>();
}

__global__ void narrow_kernel(bf16* y, const float* x, int n) {
    const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) y[i] = as_elem<bf16>(x[i]);
}
TEST(packed, rounds_to_bf16_as_the_cpu) {
    const int n = 3 * 1024;
    std::vector<float> x(n);
    for (int i = 0; i < n; i++) {
        // Upper half arbitrary but finite; lower half at, below and above the tie.
        const uint32_t high = uint32_t(random_bits(1, name_hash("bf16"), i)) & 0xbf7f0000u;
        x[i] = float_from_bits(high | (i % 3 == 0 ? 0x8000u : i % 3 == 1 ? 0x7fffu : 0x8001u));
    }
    Device<float> dx(x);
    Device<bf16> dy(x.size());
    launch(narrow_kernel, n / 256, 256, 0, kCuda, static_cast<bf16*>(dy),
           static_cast<const float*>(dx), n);
    const std::vector<bf16> y = dy.host();
    for (int i = 0; i < n; i++) ASSERT_EQ(y[i].bits, to_bf16(x[i]).bits) << x[i];
}

__global__ void warp_kernel(float* sum, float* max, const float* x) {
    const int i = threadIdx.x;
    sum[i] = warp_sum(x[i]);
    max[i] = warp_max(x[i]);
}
// The butterfly's order of additions, written as a loop: every lane ends with the same bits.
TEST(packed, warp_reductions_follow_the_butterfly) {
    std::vector<float> x(64);
    for (int i = 0; i < 64; i++) x[i] = std::sin(float(i)) * std::exp2(float(i % 13));
    Device<float> dx(x), dsum(64), dmax(64);
    launch(warp_kernel, 1, 64, 0, kCuda, static_cast<float*>(dsum), static_cast<float*>(dmax),
           static_cast<const float*>(dx));
    for (int offset = 16; offset > 0; offset /= 2) {
        const std::vector<float> old = x;
        for (int i = 0; i < 64; i++) x[i] = old[i] + old[i ^ offset];
    }
    EXPECT_EQ(dsum.host(), x);
    const std::vector<float> in = dx.host(), max = dmax.host();
    for (int w = 0; w < 2; w++) {
        float m = in[32 * w];
        for (int i = 0; i < 32; i++) m = std::fmax(m, in[32 * w + i]);
        for (int i = 0; i < 32; i++) EXPECT_EQ(max[32 * w + i], m);
    }
}

// Each reduction twice in a row, where the second may not disturb the first; one maximum is
// negative.
template <int kThreads>
__global__ void __launch_bounds__(kThreads) block_kernel(float* out, const float* x) {
    const int i = threadIdx.x;
    float sums[2], maxima[2];
    for (int k = 0; k < 2; k++) sums[k] = block_sum<kThreads>(k ? 2 * x[i] : x[i]);
    for (int k = 0; k < 2; k++) maxima[k] = block_max<kThreads>(k ? -x[i] : x[i] - 100);
    out[i] = sums[0] + maxima[0];
    out[kThreads + i] = sums[1] + maxima[1];
}
template <int kThreads>
void check_block() {
    std::vector<float> x(kThreads);
    float sum = 0, max = -INFINITY, min = INFINITY;  // small integers: exact in any order
    for (int i = 0; i < kThreads; i++) {
        x[i] = float((i * 37) % 101 - 60);
        sum += x[i];
        max = std::fmax(max, x[i]);
        min = std::fmin(min, x[i]);
    }
    Device<float> dx(x), dout(2 * kThreads);
    launch(block_kernel<kThreads>, 1, kThreads, 0, kCuda, static_cast<float*>(dout),
           static_cast<const float*>(dx));
    const std::vector<float> out = dout.host();
    for (int i = 0; i < kThreads; i++) {
        EXPECT_EQ(out[i], sum + max - 100);
        EXPECT_EQ(out[kThreads + i], 2 * sum - min);
    }
}
TEST(packed, block_reductions_reach_every_thread) {
    check_block<32>();
    check_block<96>();
    check_block<1024>();
}

}  // namespace
