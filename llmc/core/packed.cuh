// llmc/core/packed.cuh: what memory-bound kernels share: 16-byte accesses, warp and block sums.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "llmc/core/dtype.h"

// ---- elements and floats
template <class Elem>
__device__ __forceinline__ float as_float(Elem x) {
    return to_float(x);
}

// as_elem<Elem>(x): rounds to nearest, ties to even, by the GPU's own instruction.
template <class Elem>
__device__ __forceinline__ Elem as_elem(float x);
template <>
__device__ __forceinline__ float as_elem<float>(float x) {
    return x;
}
template <>
__device__ __forceinline__ bf16 as_elem<bf16>(float x) {
    return bf16{__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}

// ---- 16 bytes at a time: the widest access a thread can make, and the one that lets a warp move
// 512 consecutive bytes with one instruction. Addresses are 16-byte aligned.
template <class Elem>
struct __align__(16) Packed128 {
    static constexpr int size = 16 / sizeof(Elem);
    Elem v[size];
    __device__ Elem& operator[](int i) {
        return v[i];
    }
    __device__ const Elem& operator[](int i) const {
        return v[i];
    }
};

template <class Elem>
__device__ __forceinline__ Packed128<Elem> packed_from_bits(int4 bits) {
    Packed128<Elem> x;
    memcpy(&x, &bits, 16);
    return x;
}
template <class Elem>
__device__ __forceinline__ int4 packed_bits(const Packed128<Elem>& x) {
    int4 bits;
    memcpy(&bits, &x, 16);
    return bits;
}

// Plain access, for global or shared memory that is used again soon.
template <class Elem>
__device__ __forceinline__ Packed128<Elem> load128(const Elem* p) {
#ifdef CUSIM
    return packed_from_bits<Elem>(cusim::load(reinterpret_cast<const int4*>(p)));
#else
    return packed_from_bits<Elem>(*reinterpret_cast<const int4*>(p));
#endif
}
template <class Elem>
__device__ __forceinline__ void store128(Elem* p, const Packed128<Elem>& x) {
#ifdef CUSIM
    cusim::store(reinterpret_cast<int4*>(p), packed_bits(x));
#else
    *reinterpret_cast<int4*>(p) = packed_bits(x);
#endif
}

// Streaming access: global memory that is touched once, so it need not push others out of L2.
template <class Elem>
__device__ __forceinline__ Packed128<Elem> load128_streaming(const Elem* p) {
    return packed_from_bits<Elem>(__ldcs(reinterpret_cast<const int4*>(p)));
}
template <class Elem>
__device__ __forceinline__ void store128_streaming(Elem* p, const Packed128<Elem>& x) {
    __stcs(reinterpret_cast<int4*>(p), packed_bits(x));
}

// ---- reductions
// The simulator reports where a collective was called, so there the wrappers take their caller's
// place as a last argument and pass it on; under nvcc these three vanish.
#ifdef CUSIM
#define CALLER , cusim::Where at_ = cusim::Where::here()
#define CALLER_ARG , at_
#define CALLER_ONLY_ARG at_
#else
#define CALLER
#define CALLER_ARG
#define CALLER_ONLY_ARG
#endif

// Sum and maximum over the 32 lanes of a whole warp; every lane gets the result. The order is the
// butterfly's: lane l adds lane l^16, then l^8, l^4, l^2, l^1, so all lanes hold the same bits.
__device__ __forceinline__ float warp_sum(float v CALLER) {
#ifdef CUSIM  // one collective instead of five, the same order of additions
    return cusim::butterfly_sum(v, at_);
#else
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_xor_sync(0xffffffffu, v, offset);
    return v;
#endif
}
__device__ __forceinline__ float warp_max(float v CALLER) {
#ifdef CUSIM
    return cusim::butterfly_max(v, at_);
#else
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1)
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, offset));
    return v;
#endif
}

// Sum over a block of kThreads threads; every thread gets it. The second barrier lets the next call
// reuse the slots at once.
template <int kThreads>
__device__ __forceinline__ float block_sum(float v CALLER) {
    static_assert(kThreads % 32 == 0 && kThreads <= 1024, "whole warps, one slot a lane");
    __shared__ float partial[kThreads / 32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    v = warp_sum(v CALLER_ARG);
    if (lane == 0) partial[warp] = v;
    __syncthreads(CALLER_ONLY_ARG);
    v = warp_sum(lane < kThreads / 32 ? partial[lane] : 0.0f CALLER_ARG);
    __syncthreads(CALLER_ONLY_ARG);
    return v;
}
template <int kThreads>
__device__ __forceinline__ float block_max(float v CALLER) {
    static_assert(kThreads % 32 == 0 && kThreads <= 1024, "whole warps, one slot a lane");
    __shared__ float partial[kThreads / 32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    v = warp_max(v CALLER_ARG);
    if (lane == 0) partial[warp] = v;
    __syncthreads(CALLER_ONLY_ARG);
    v = warp_max(lane < kThreads / 32 ? partial[lane] : -INFINITY CALLER_ARG);
    __syncthreads(CALLER_ONLY_ARG);
    return v;
}
