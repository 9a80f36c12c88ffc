// llmc/ops/partial_sums.cuh: the second stage of a sum over many rows that blocks have begun.
//
// Each block of a first kernel leaves a row of partial sums. Here they are added in a fixed order:
// 32 columns a block; eight threads a column add every eighth row, then one adds the eight.
#pragma once
#include "llmc/ops/kernel.cuh"

constexpr int kPartialThreads = 8;

// blockIdx.y picks the first or the second vector of each row.
static __global__ void __launch_bounds__(32 * kPartialThreads, 4)
    add_partial_sums_kernel(float* __restrict__ first, float* __restrict__ second,
                            const float* __restrict__ partials, int rows, int width, int C) {
    __shared__ float sums[kPartialThreads][32];
    const int c = blockIdx.x * 32 + threadIdx.x;
    const size_t stride = size_t(gridDim.y) * width;
    const float* in = partials + size_t(blockIdx.y) * width;
    float sum = 0;
    if (c < C)
        for (int i = threadIdx.y; i < rows; i += kPartialThreads) sum += in[i * stride + c];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || c >= C) return;
    float total = 0;
    for (int i = 0; i < kPartialThreads; i++) total += sums[i][threadIdx.x];
    float* out = blockIdx.y == 0 ? first : second;
    out[c] += total;
}

// first[c] += sum_i partials[i,0,c], second[c] += sum_i partials[i,1,c].
inline void add_partial_sums(float* first,           // (C)  +=
                             float* second,          // (C)  +=  or null
                             const float* partials,  // (rows, 2, width); (rows, 1, width) where
                                                     // second is null
                             int rows, int width, int C, CudaStream s) {
    launch(add_partial_sums_kernel, dim3(ceil_div(C, 32), second ? 2 : 1),
           dim3(32, kPartialThreads), 0, s, first, second, partials, rows, width, C);
}
