// 16-bit gradients on CUDA: a thread converts a quad of neighbours. 4 bytes an element are read for
// the largest, 6 are moved to pack and to unpack, 10 to add; the bandwidth of device memory bounds
// all. The scale is worked out by every thread, since the host does not know the largest.
#include "llmc/ops/kernel.cuh"
#include "llmc/ops/wire_format.h"

namespace {

constexpr int kThreads = 256;

template <Wire kWire>
__device__ __forceinline__ int exponent_of(const int32_t* most, int ranks) {
    return kWire == Wire::Fp16 ? wire_scale_exponent(*most, ranks) : 0;
}

__global__ void __launch_bounds__(kThreads)
    wire_most_kernel(int32_t* most, const float* __restrict__ x, size_t n) {
    const size_t i = size_t(blockIdx.x) * kThreads + threadIdx.x;
    int32_t mine = i < n ? int32_t(float_bits(x[i]) & 0x7fffffffu) : 0;
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        mine = max(mine, __shfl_xor_sync(0xffffffffu, mine, offset));
    if (threadIdx.x % 32 == 0) atomicMax(most, mine);
}

template <Wire kWire>
__global__ void __launch_bounds__(kThreads, 4)
    wire_pack_kernel(uint16_t* __restrict__ y, const float* __restrict__ x, size_t n,
                     const int32_t* most, int ranks, bool aligned) {
    const size_t i = (size_t(blockIdx.x) * kThreads + threadIdx.x) * 4;
    if (i >= n) return;
    const float scale = wire_power(exponent_of<kWire>(most, ranks));
    if (aligned && i + 4 <= n) {
        const Quad<float> in = quad_load(x + i);
        Quad<uint16_t> out;
#pragma unroll
        for (int k = 0; k < 4; k++) out[k] = wire_round<kWire>(in[k], scale);
        quad_store(y + i, out);
    } else {
        for (size_t k = i; k < i + 4 && k < n; k++) y[k] = wire_round<kWire>(x[k], scale);
    }
}

// x = the values of y, or x += them.
template <Wire kWire, bool kAdd>
__global__ void __launch_bounds__(kThreads, 4)
    wire_unpack_kernel(float* __restrict__ x, const uint16_t* __restrict__ y, size_t n,
                       const int32_t* most, int ranks, bool aligned) {
    const size_t i = (size_t(blockIdx.x) * kThreads + threadIdx.x) * 4;
    if (i >= n) return;
    const float unscale = wire_power(-exponent_of<kWire>(most, ranks));
    if (aligned && i + 4 <= n) {
        const Quad<uint16_t> in = quad_load(y + i);
        Quad<float> out;
        if constexpr (kAdd) out = quad_load(x + i);
#pragma unroll
        for (int k = 0; k < 4; k++)
            out[k] = kAdd ? out[k] + wire_value<kWire>(in[k], unscale)
                          : wire_value<kWire>(in[k], unscale);
        quad_store(x + i, out);
    } else {
        for (size_t k = i; k < i + 4 && k < n; k++)
            x[k] =
                kAdd ? x[k] + wire_value<kWire>(y[k], unscale) : wire_value<kWire>(y[k], unscale);
    }
}

template <bool kAdd>
void unpack_launch(float* x, const uint16_t* y, size_t n, Wire wire, const int32_t* most, int ranks,
                   CudaStream s) {
    if (n == 0) return;
    auto* const kernel = wire == Wire::Fp16 ? wire_unpack_kernel<Wire::Fp16, kAdd>
                                            : wire_unpack_kernel<Wire::Bf16, kAdd>;
    launch(kernel, blocks_for(n, kThreads * 4), kThreads, 0, s, x, y, n, most, ranks,
           quad_aligned(x) && quad_aligned(y));
}

}  // namespace

void wire_most(int32_t* most, const float* x, size_t n, CudaStream s) {
    if (n == 0) return;
    launch(wire_most_kernel, blocks_for(n, kThreads), kThreads, 0, s, most, x, n);
}

void wire_pack(uint16_t* y, const float* x, size_t n, Wire wire, const int32_t* most, int ranks,
               CudaStream s) {
    if (n == 0) return;
    auto* const kernel =
        wire == Wire::Fp16 ? wire_pack_kernel<Wire::Fp16> : wire_pack_kernel<Wire::Bf16>;
    launch(kernel, blocks_for(n, kThreads * 4), kThreads, 0, s, y, x, n, most, ranks,
           quad_aligned(y) && quad_aligned(x));
}

void wire_unpack(float* x, const uint16_t* y, size_t n, Wire wire, const int32_t* most, int ranks,
                 CudaStream s) {
    unpack_launch<false>(x, y, n, wire, most, ranks, s);
}

void wire_add(float* acc, const uint16_t* y, size_t n, Wire wire, const int32_t* most, int ranks,
              CudaStream s) {
    unpack_launch<true>(acc, y, n, wire, most, ranks, s);
}
