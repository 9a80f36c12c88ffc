// llmc/ops/gemm_mma.cuh: a matrix product on tensor cores, bf16 in, fp32 sums, any size and stride.
//
// The readable one: the last rung of dev/ladder/matmul.cu, and what matmul.cu falls back on where
// cuBLASLt has no algorithm.
//   d[i,j] (+)= sum_k left[i,k] right[j,k]
// Either operand may lie with k along its rows (Major::Row: element (i,k) at i*K + k) or across
// them (Major::Depth: at k*rows + i), which covers y = x w^T, dx = dy w and dw = dy^T x.
//
// A block of 8 warps makes a tile of 128 x 128 of d, a warp 64 x 32 of it. Slices of 64 along k
// come by two stages deep: while one is used the next is on its way. Bytes: each operand is read
// once for every 128 rows or columns of d. Bound by tensor cores; a k-step of a warp takes 6
// ldmatrix for 16 mma.
#pragma once
#include "llmc/core/tensorop.cuh"
#include "llmc/ops/kernel.cuh"

namespace gemm {

enum class Major { Row, Depth };

constexpr int kM = 128, kN = 128, kK = 64, kWarps = 8, kThreads = 32 * kWarps, kStages = 2;
constexpr int kWarpM = 64, kWarpN = 32;  // 2 x 4 warps
constexpr size_t kSharedBytes = kStages * (kM + kN) * kK * sizeof(bf16);

struct Operand {
    const bf16* p;
    int rows;  // rows of d (left) or columns of d (right)
};

// Chunk c (16 bytes) of row r of a tile in shared memory lies at c ^ (r & 7): the eight rows that
// one phase of ldmatrix reads fall into different banks.
template <int kWidth>
__device__ __forceinline__ int swizzled(int row, int chunk) {
    return row * kWidth + ((chunk ^ (row & 7)) << 3);
}

// tile[r][c] = src[row0 + r][col0 + c], zeros outside (rows, cols). Rows of src are `cols` apart.
template <int kRows, int kWidth, bool kAligned>
__device__ __forceinline__ void fetch(bf16* tile, const bf16* src, int rows, int cols, int row0,
                                      int col0) {
    constexpr int kChunks = kWidth / 8;
    static_assert(kRows * kChunks % kThreads == 0, "whole chunks for every thread");
#pragma unroll
    for (int i = 0; i < kRows * kChunks / kThreads; i++) {
        const int id = threadIdx.x + i * kThreads, r = id / kChunks, c = id % kChunks;
        const int row = row0 + r, col = col0 + c * 8;
        bf16* to = tile + swizzled<kWidth>(r, c);
        if constexpr (kAligned) {
            const bool valid = row < rows && col < cols;  // cols is a multiple of 8
            cp_async_16(to, valid ? src + size_t(row) * cols + col : src, valid);
        } else {
            for (int j = 0; j < 8; j++)
                to[j] = row < rows && col + j < cols ? src[size_t(row) * cols + col + j] : bf16{0};
        }
    }
}

// An operand's slice of `kRows` rows (of d, or columns) by kK.
template <int kRows, Major major, bool kAligned>
__device__ __forceinline__ void fetch_slice(bf16* tile, Operand x, int K, int row0, int k0) {
    if constexpr (major == Major::Row)
        fetch<kRows, kK, kAligned>(tile, x.p, x.rows, K, row0, k0);
    else
        fetch<kK, kRows, kAligned>(tile, x.p, K, x.rows, k0, row0);
}

// The left operand of mma: rows row..row+15, depth 16 k.. of the slice.
template <Major major>
__device__ __forceinline__ void load_left(uint32_t (&a)[4], const bf16* tile, int row, int k) {
    const int lane = threadIdx.x % 32;
    if constexpr (major == Major::Row)
        ldmatrix_x4(a, tile + swizzled<kK>(row + lane % 16, 2 * k + lane / 16));
    else
        ldmatrix_x4_trans(
            a, tile + swizzled<kM>(16 * k + lane / 16 * 8 + lane % 8, row / 8 + lane / 8 % 2));
}
// The right operands of two mma: rows row..row+15 (columns of d): b[0], b[1] and b[2], b[3].
template <Major major>
__device__ __forceinline__ void load_right(uint32_t (&b)[4], const bf16* tile, int row, int k) {
    const int lane = threadIdx.x % 32;
    if constexpr (major == Major::Row)
        ldmatrix_x4(b, tile + swizzled<kK>(row + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
    else
        ldmatrix_x4_trans(b, tile + swizzled<kN>(16 * k + lane % 16, row / 8 + lane / 16));
}

template <class Out, Major left_major, Major right_major, bool kAligned>
__global__ void __launch_bounds__(kThreads, 1)
    gemm_kernel(Out* __restrict__ d, Operand left, Operand right, int K, bool accumulate) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row0 = blockIdx.x * kM, col0 = blockIdx.y * kN;
    const int warp_row = warp / 4 * kWarpM, warp_col = warp % 4 * kWarpN;
    bf16* tiles = dyn_smem<bf16>();
    const auto stage = [&](int slice) { return tiles + slice % kStages * (kM + kN) * kK; };
    const auto fetch_both = [&](int slice) {
        fetch_slice<kM, left_major, kAligned>(stage(slice), left, K, row0, slice * kK);
        fetch_slice<kN, right_major, kAligned>(stage(slice) + kM * kK, right, K, col0, slice * kK);
    };

    float acc[kWarpM / 16][kWarpN / 8][4] = {};
    const int slices = ceil_div(K, kK);
    fetch_both(0);
    cp_async_commit();
    for (int slice = 0; slice < slices; slice++) {
        if (slice + 1 < slices) fetch_both(slice + 1);
        cp_async_commit();
        cp_async_wait_group<1>();
        __syncthreads();
        const bf16 *tile_left = stage(slice), *tile_right = tile_left + kM * kK;
#pragma unroll
        for (int k = 0; k < kK / 16; k++) {
            uint32_t b[kWarpN / 16][4];
#pragma unroll
            for (int n = 0; n < kWarpN / 16; n++)
                load_right<right_major>(b[n], tile_right, warp_col + 16 * n, k);
#pragma unroll
            for (int m = 0; m < kWarpM / 16; m++) {
                uint32_t a[4];
                load_left<left_major>(a, tile_left, warp_row + 16 * m, k);
#pragma unroll
                for (int n = 0; n < kWarpN / 16; n++) {
                    const uint32_t first[2] = {b[n][0], b[n][1]}, second[2] = {b[n][2], b[n][3]};
                    mma_m16n8k16_bf16(acc[m][2 * n], a, first);
                    mma_m16n8k16_bf16(acc[m][2 * n + 1], a, second);
                }
            }
        }
        __syncthreads();  // the next copies overwrite this stage
    }

#pragma unroll
    for (int m = 0; m < kWarpM / 16; m++)
#pragma unroll
        for (int n = 0; n < kWarpN / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int row = row0 + warp_row + 16 * m + lane / 4 + i / 2 * 8;
                const int col = col0 + warp_col + 8 * n + lane % 4 * 2 + i % 2;
                if (row >= left.rows || col >= right.rows) continue;
                Out& out = d[size_t(row) * right.rows + col];
                out = as_elem<Out>(acc[m][n][i] + (accumulate ? as_float(out) : 0.f));
            }
}

// d (left.rows, right.rows), row-major.
template <class Out>
void run(Out* d, Operand left, Major left_major, Operand right, Major right_major, int K,
         bool accumulate, CudaStream s) {
    const auto width = [&](Operand x, Major major) { return major == Major::Row ? K : x.rows; };
    const bool aligned = rows_aligned<bf16>(width(left, left_major), left.p) &&
                         rows_aligned<bf16>(width(right, right_major), right.p);
    const auto start = [&](auto kernel) {
        launch(kernel, dim3(ceil_div(left.rows, kM), ceil_div(right.rows, kN)), kThreads,
               kSharedBytes, s, d, left, right, K, accumulate);
    };
    using enum Major;
    if (left_major == Row && right_major == Row)
        return start(aligned ? gemm_kernel<Out, Row, Row, true>
                             : gemm_kernel<Out, Row, Row, false>);
    if (left_major == Row)
        return start(aligned ? gemm_kernel<Out, Row, Depth, true>
                             : gemm_kernel<Out, Row, Depth, false>);
    CHECK(right_major == Depth, Exit::Usage, "gemm: this pair of layouts is not used");
    start(aligned ? gemm_kernel<Out, Depth, Depth, true> : gemm_kernel<Out, Depth, Depth, false>);
}

}  // namespace gemm
