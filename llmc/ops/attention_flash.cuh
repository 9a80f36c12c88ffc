// llmc/ops/attention_flash.cuh: the pieces of which the tensor-core attention kernels are made.
//
// All three kernels (forward, dq, dk with dv) have one shape: a warp owns 16 * kMI rows (queries,
// or keys) and walks over tiles of rows of the other side, which stream through two stages of
// shared memory. Two products per tile and operand:
//   scores[own, tile] = own . tile^T     rows_times_tile_transposed
//   acc[own, :]      += w[own, tile] tile      weights_times_tile
// The accumulator of the first product has the register layout of the left operand of the second,
// so scores and weights never leave the registers. Pictures: dev/doc/attention.md.
#pragma once
#include "llmc/core/tensorop.cuh"
#include "llmc/ops/attention_shape.cuh"
#include "llmc/ops/kernel.cuh"

namespace flash {

constexpr int kWarps = 4, kThreads = 32 * kWarps, kStages = 2;
constexpr float kLog2e = 1.44269504f;

// ---- tiles in shared memory: rows of kHS bf16, in chunks of 16 bytes
// Chunk c of row r lies at c ^ (r & 7): the eight rows that one phase of ldmatrix reads at the same
// c, or that one store of a quad column writes, fall into eight different groups of four banks.
template <int kHS>
__device__ __forceinline__ int swizzled(int row, int chunk) {
    return row * kHS + ((chunk ^ (row & 7)) << 3);
}

// Starts copying rows [first, first + kRows) of src, first < T; rows at and beyond T become zeros.
// Inside a tile offsets fit 32 bits, which saves registers.
template <int kHS, int kRows>
__device__ __forceinline__ void tile_fetch(bf16* tile, const bf16* src, int stride, int first,
                                           int T) {
    constexpr int kChunks = kHS / 8;
    static_assert(kRows * kChunks % kThreads == 0, "whole chunks for every thread");
    const bf16* from = src + size_t(first) * stride;
#pragma unroll
    for (int i = 0; i < kRows * kChunks / kThreads; i++) {
        const int id = threadIdx.x + i * kThreads, row = id / kChunks, chunk = id % kChunks;
        const bool valid = first + row < T;
        cp_async_16(tile + swizzled<kHS>(row, chunk), from + (valid ? row : 0) * stride + chunk * 8,
                    valid);
    }
}

// ---- operands of mma
// A: 16 rows from `row`, 16 columns from 16 * k.
template <int kHS>
__device__ __forceinline__ void load_a(uint32_t (&a)[4], const bf16* tile, int row, int k) {
    const int lane = threadIdx.x % 32;
    ldmatrix_x4(a, tile + swizzled<kHS>(row + lane % 16, 2 * k + lane / 16));
}

__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &pair, 4);
    return bits;
}

// scores += A tile^T for one k-step of 16 columns: 16 tile rows give B operands for two mma.
template <int kHS, int kMI, int kN>
__device__ __forceinline__ void scores_step(float (&scores)[kMI][kN / 8][4],
                                            const uint32_t (&a)[kMI][4], const bf16* tile, int k) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < kN / 16; n++) {
        uint32_t b[4];
        ldmatrix_x4(b,
                    tile + swizzled<kHS>(n * 16 + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
        const uint32_t left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
#pragma unroll
        for (int m = 0; m < kMI; m++) {
            mma_m16n8k16_bf16(scores[m][2 * n], a[m], left);
            mma_m16n8k16_bf16(scores[m][2 * n + 1], a[m], right);
        }
    }
}

// scores = own . tile^T, own rows from `row` of own_tile in shared memory.
template <int kHS, int kMI, int kN>
__device__ __forceinline__ void rows_times_tile_transposed(float (&scores)[kMI][kN / 8][4],
                                                           const bf16* own, int row,
                                                           const bf16* tile) {
#pragma unroll
    for (int k = 0; k < kHS / 16; k++) {
        uint32_t a[kMI][4];
#pragma unroll
        for (int m = 0; m < kMI; m++) load_a<kHS>(a[m], own, row + 16 * m, k);
        scores_step<kHS, kMI, kN>(scores, a, tile, k);
    }
}

// acc += w tile, w rounded to bf16.
template <int kHS, int kMI, int kN>
__device__ __forceinline__ void weights_times_tile(float (&acc)[kMI][kHS / 8][4],
                                                   const float (&w)[kMI][kN / 8][4],
                                                   const bf16* tile) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < kN / 16; k++) {  // 16 tile rows a step
        uint32_t a[kMI][4];
#pragma unroll
        for (int m = 0; m < kMI; m++) {
            a[m][0] = pack_bf16(w[m][2 * k][0], w[m][2 * k][1]);
            a[m][1] = pack_bf16(w[m][2 * k][2], w[m][2 * k][3]);
            a[m][2] = pack_bf16(w[m][2 * k + 1][0], w[m][2 * k + 1][1]);
            a[m][3] = pack_bf16(w[m][2 * k + 1][2], w[m][2 * k + 1][3]);
        }
#pragma unroll
        for (int n = 0; n < kHS / 16; n++) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, tile + swizzled<kHS>(k * 16 + lane % 16, 2 * n + lane / 16));
            const uint32_t left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
#pragma unroll
            for (int m = 0; m < kMI; m++) {
                mma_m16n8k16_bf16(acc[m][2 * n], a[m], left);
                mma_m16n8k16_bf16(acc[m][2 * n + 1], a[m], right);
            }
        }
    }
}

// ---- output: a warp's rows go through its own rows of `staging`, so that global memory is written
// by 16 bytes a lane, whole sectors. factor[m][j]: of row 16 m + 8 j + lane / 4.
template <int kHS, int kMI>
__device__ __forceinline__ void rows_store(bf16* dst, int stride, int first, int T,
                                           const float (&acc)[kMI][kHS / 8][4],
                                           const float (&factor)[kMI][2], bf16* staging) {
    const int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16 * kMI;
    __syncwarp();  // all lanes are done reading these rows
#pragma unroll
    for (int m = 0; m < kMI; m++)
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int n = 0; n < kHS / 8; n++) {
                const int row = row0 + 16 * m + 8 * j + lane / 4;
                const uint32_t pair =
                    pack_bf16(acc[m][n][2 * j] * factor[m][j], acc[m][n][2 * j + 1] * factor[m][j]);
                *reinterpret_cast<uint32_t*>(staging + swizzled<kHS>(row, n) + lane % 4 * 2) = pair;
            }
    __syncwarp();
    constexpr int kChunks = kHS / 8;
#pragma unroll
    for (int i = lane; i < 16 * kMI * kChunks; i += 32) {
        const int row = row0 + i / kChunks, chunk = i % kChunks;
        if (first + row < T)
            store128(dst + size_t(first + row) * stride + chunk * 8,
                     load128(staging + swizzled<kHS>(row, chunk)));
    }
}

}  // namespace flash
