// Order-free sums on CUDA: floating point inside a chunk in the CPU's order, integers above it. So
// the bits are the CPU's, whatever the grid; integer atomics do no harm.
//
// sum_of_squares: 8 lanes a chunk of 64, 4 bytes read an element. accumulate_fixed and
// fixed_to_float: a thread two elements, 24 and 12 bytes moved an element. Bandwidth bounds all.
#include "llmc/ops/reduce_sums.h"

#include "llmc/ops/fixed_sum_format.h"
#include "llmc/ops/kernel.cuh"

namespace {

constexpr int kThreads = 256, kLanes = 8;
// Blocks add normalised limbs below 2^50 to one word each: at most 2^12 of them, plus what is
// there, stay far below 2^63.
constexpr size_t kMostBlocks = 4096;

// Adds the sums of all threads of the block to *sum.
__device__ __forceinline__ void block_add(FixedSum* sum, FixedSum mine) {
    __shared__ FixedSum part[kThreads / 32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        mine.hi += __shfl_xor_sync(0xffffffffu, mine.hi, offset);
        mine.mid += __shfl_xor_sync(0xffffffffu, mine.mid, offset);
        mine.lo += __shfl_xor_sync(0xffffffffu, mine.lo, offset);
        mine.bad += __shfl_xor_sync(0xffffffffu, mine.bad, offset);
    }
    if (lane == 0) part[warp] = mine;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int i = 1; i < kThreads / 32; i++) {
        mine.hi += part[i].hi;
        mine.mid += part[i].mid;
        mine.lo += part[i].lo;
        mine.bad += part[i].bad;
    }
    limbs_normalise(mine);
    // Two's complement: an unsigned sum has the bits of the signed one.
    using Word = unsigned long long;
    atomicAdd(reinterpret_cast<Word*>(&sum->hi), Word(mine.hi));
    atomicAdd(reinterpret_cast<Word*>(&sum->mid), Word(mine.mid));
    atomicAdd(reinterpret_cast<Word*>(&sum->lo), Word(mine.lo));
    if (mine.bad) atomicAdd(reinterpret_cast<Word*>(&sum->bad), Word(mine.bad));
}

__global__ void fixed_normalise_kernel(FixedSum* sum) {
    limbs_normalise(*sum);
}

// Lane j of a group of 8 sums elements j, j + 8, ... of a chunk; the lanes' sums follow in order.
__global__ void __launch_bounds__(kThreads, 4)
    sum_of_squares_kernel(FixedSum* sum, const float* __restrict__ x, size_t n, size_t chunks) {
    constexpr int kChunks = kThreads / kLanes;
    const int j = threadIdx.x % kLanes;
    FixedSum mine;
    // Whole blocks go round together, for the shuffles.
    for (size_t first = size_t(blockIdx.x) * kChunks; first < chunks;
         first += size_t(gridDim.x) * kChunks) {
        const size_t chunk = first + threadIdx.x / kLanes, from = chunk * kSumChunk + j;
        double lane = 0;
        if (from + (kSumChunk - kLanes) < n) {
            float v[kSumChunk / kLanes];
#pragma unroll
            for (int i = 0; i < kSumChunk / kLanes; i++) v[i] = __ldcs(x + from + i * kLanes);
#pragma unroll
            for (int i = 0; i < kSumChunk / kLanes; i++) lane += double(v[i]) * v[i];
        } else {
            for (int i = 0; i < kSumChunk; i += kLanes)
                if (from + i < n) lane += double(x[from + i]) * x[from + i];
        }
        double total = 0;
#pragma unroll
        for (int i = 0; i < kLanes; i++) total += __shfl_sync(0xffffffffu, lane, i, kLanes);
        if (j == 0 && chunk < chunks) limbs_add(mine, total);
    }
    block_add(sum, mine);
}

__global__ void __launch_bounds__(kThreads, 4)
    sum_of_elements_kernel(FixedSum* sum, const float* __restrict__ x, size_t n) {
    FixedSum mine;
    for (size_t i = size_t(blockIdx.x) * kThreads + threadIdx.x; i < n;
         i += size_t(gridDim.x) * kThreads)
        limbs_add(mine, double(x[i]));
    block_add(sum, mine);
}

// ---- gradients in fixed point
constexpr float kGradUnit = float(1 / kGradScale);

struct alignas(16) FixedPair {
    int64_t a, b;
};

// x * 2^44 is exact in double, then rounded once; returns whether x is in range.
__device__ __forceinline__ bool fixed_accumulate(int64_t& acc, float x, float limit) {
    const bool good = fabsf(x) < limit;  // false for NaN
    acc += good ? __double2ll_rn(double(x) * kGradScale) : 0;
    return good;
}

__global__ void __launch_bounds__(kThreads, 4)
    accumulate_fixed_kernel(int64_t* __restrict__ acc, float* __restrict__ x, float limit, int* bad,
                            size_t n, bool aligned) {
    const size_t i = (size_t(blockIdx.x) * kThreads + threadIdx.x) * 2;
    if (i >= n) return;
    bool good = true;
    if (aligned && i + 2 <= n) {
        FixedPair sum = *reinterpret_cast<FixedPair*>(acc + i);
        const float2 v = *reinterpret_cast<float2*>(x + i);
        good = fixed_accumulate(sum.a, v.x, limit);
        good = fixed_accumulate(sum.b, v.y, limit) && good;
        *reinterpret_cast<FixedPair*>(acc + i) = sum;
        __stcs(reinterpret_cast<int2*>(x + i), int2{0, 0});
    } else {
        for (size_t k = i; k < i + 2 && k < n; k++) {
            good = fixed_accumulate(acc[k], x[k], limit) && good;
            x[k] = 0;
        }
    }
    if (!good) atomicExch(bad, 1);
}

__global__ void __launch_bounds__(kThreads, 4)
    fixed_to_float_kernel(float* __restrict__ x, const int64_t* __restrict__ acc, size_t n,
                          bool aligned) {
    const size_t i = (size_t(blockIdx.x) * kThreads + threadIdx.x) * 2;
    if (i >= n) return;
    if (aligned && i + 2 <= n) {
        const FixedPair sum = *reinterpret_cast<const FixedPair*>(acc + i);
        *reinterpret_cast<float2*>(x + i) =
            make_float2(__ll2float_rn(sum.a) * kGradUnit, __ll2float_rn(sum.b) * kGradUnit);
    } else {
        for (size_t k = i; k < i + 2 && k < n; k++) x[k] = __ll2float_rn(acc[k]) * kGradUnit;
    }
}

__global__ void __launch_bounds__(kThreads)
    accumulate_float_kernel(float* __restrict__ acc, float* __restrict__ x, size_t n) {
    const size_t i = size_t(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= n) return;
    acc[i] += x[i];
    x[i] = 0;
}

bool pairs_aligned(const int64_t* acc, const float* x) {
    return all_aligned(16, acc) && all_aligned(8, x);
}

}  // namespace

void sum_of_squares(FixedSum* sum, const float* x, size_t n, CudaStream s) {
    if (n == 0) return;
    const size_t chunks = ceil_div(n, size_t(kSumChunk));
    const size_t blocks = min(kMostBlocks, ceil_div(chunks, size_t(kThreads / kLanes)));
    launch(sum_of_squares_kernel, dim3(unsigned(blocks)), kThreads, 0, s, sum, x, n, chunks);
    launch(fixed_normalise_kernel, 1, 1, 0, s, sum);
}

void sum_of_elements(FixedSum* sum, const float* x, size_t n, CudaStream s) {
    if (n == 0) return;
    const size_t blocks = min(kMostBlocks, ceil_div(n, size_t(kThreads)));
    launch(sum_of_elements_kernel, dim3(unsigned(blocks)), kThreads, 0, s, sum, x, n);
    launch(fixed_normalise_kernel, 1, 1, 0, s, sum);
}

void accumulate_fixed(int64_t* acc, float* x, float limit, int* bad, size_t n, CudaStream s) {
    if (n == 0) return;
    launch(accumulate_fixed_kernel, blocks_for(n, kThreads * 2), kThreads, 0, s, acc, x, limit, bad,
           n, pairs_aligned(acc, x));
}

void accumulate_float(float* acc, float* x, size_t n, CudaStream s) {
    if (n == 0) return;
    launch(accumulate_float_kernel, blocks_for(n, kThreads), kThreads, 0, s, acc, x, n);
}

void fixed_to_float(float* x, const int64_t* acc, size_t n, CudaStream s) {
    if (n == 0) return;
    launch(fixed_to_float_kernel, blocks_for(n, kThreads * 2), kThreads, 0, s, x, acc, n,
           pairs_aligned(acc, x));
}
