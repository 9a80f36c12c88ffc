// dev/ladder/matmul.cu: y = x w^T with bf16 operands and fp32 sums. Each rung reuses what it has
// loaded more often: from memory, from shared memory, from registers.
#include "dev/ladder/ladder.cuh"
#include "llmc/core/tensorop.cuh"
#include "llmc/ops/gemm_mma.cuh"
#include "llmc/ops/matmul.h"

namespace {

// 1. A thread an output: every operand comes from memory (or a cache) for every multiplication.
// Lanes walk over rows of w, K elements apart.
__global__ void thread_an_output(bf16* y, const bf16* x, const bf16* w, int N, int K, int M) {
    const int m = blockIdx.x * blockDim.x + threadIdx.x, n = blockIdx.y;
    if (m >= M) return;
    float sum = 0;
    for (int k = 0; k < K; k++)
        sum += as_float(x[size_t(n) * K + k]) * as_float(w[size_t(m) * K + k]);
    y[size_t(n) * M + m] = as_elem<bf16>(sum);
    (void)N;
}

// 2. Tiles of 32 x 32 in shared memory: what a block loads serves 32 rows and 32 columns. The tile
// of w has odd rows, or its columns would lie in one bank.
__global__ void shared_tiles(bf16* y, const bf16* x, const bf16* w, int, int K, int M) {
    __shared__ float sx[32][32], sw[32][33];
    const int tx = threadIdx.x, ty = threadIdx.y, m0 = blockIdx.x * 32, n0 = blockIdx.y * 32;
    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += 32) {
        sx[ty][tx] = as_float(x[size_t(n0 + ty) * K + k0 + tx]);
        sw[ty][tx] = as_float(w[size_t(m0 + ty) * K + k0 + tx]);
        __syncthreads();
        for (int k = 0; k < 32; k++) sum += sx[ty][k] * sw[tx][k];
        __syncthreads();
    }
    y[size_t(n0 + ty) * M + m0 + tx] = as_elem<bf16>(sum);
}

// 3. Tiles of 64 x 64, a thread 4 x 4 outputs: 8 reads of shared memory for 16 multiplications
// instead of 2 for 1, and half the bytes from memory.
__global__ void __launch_bounds__(256)
    register_tiles(bf16* y, const bf16* x, const bf16* w, int, int K, int M) {
    __shared__ float sx[64][33], sw[64][33];
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16, m0 = blockIdx.x * 64,
              n0 = blockIdx.y * 64;
    float sum[4][4] = {};
    for (int k0 = 0; k0 < K; k0 += 32) {
        for (int i = threadIdx.x; i < 64 * 32; i += 256) {
            sx[i / 32][i % 32] = as_float(x[size_t(n0 + i / 32) * K + k0 + i % 32]);
            sw[i / 32][i % 32] = as_float(w[size_t(m0 + i / 32) * K + k0 + i % 32]);
        }
        __syncthreads();
        for (int k = 0; k < 32; k++) {
            float a[4], b[4];
            for (int i = 0; i < 4; i++) a[i] = sx[ty + 16 * i][k], b[i] = sw[tx + 16 * i][k];
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) sum[i][j] += a[i] * b[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            y[size_t(n0 + ty + 16 * i) * M + m0 + tx + 16 * j] = as_elem<bf16>(sum[i][j]);
}

// 4., 5. Tensor cores: a warp multiplies 16 x 16 by 16 x 8 in one instruction. Tiles of 64 x 64 x
// 64 stay bf16 in shared memory; four warps make 32 x 32 each. ldmatrix reads 16 bytes of 8 rows at
// a time: rows are 128 bytes long, so without a swizzle all 8 fall into the same banks.
template <bool kSwizzle>
__device__ int place(int row, int chunk) {
    return row * 64 + ((kSwizzle ? chunk ^ (row & 7) : chunk) << 3);
}
template <bool kSwizzle>
__global__ void __launch_bounds__(128)
    tensor_cores(bf16* y, const bf16* x, const bf16* w, int, int K, int M) {
    __shared__ __align__(128) bf16 sx[64 * 64], sw[64 * 64];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, m0 = blockIdx.x * 64,
              n0 = blockIdx.y * 64;
    const int row = warp / 2 * 32, col = warp % 2 * 32;
    float acc[2][4][4] = {};
    for (int k0 = 0; k0 < K; k0 += 64) {
        for (int i = threadIdx.x; i < 64 * 8; i += 128) {
            const int r = i / 8, c = i % 8;
            store128(sx + place<kSwizzle>(r, c), load128(x + size_t(n0 + r) * K + k0 + c * 8));
            store128(sw + place<kSwizzle>(r, c), load128(w + size_t(m0 + r) * K + k0 + c * 8));
        }
        __syncthreads();
        for (int k = 0; k < 4; k++)
            for (int n = 0; n < 2; n++) {
                uint32_t b[4];
                ldmatrix_x4(b, sw + place<kSwizzle>(col + 16 * n + lane / 16 * 8 + lane % 8,
                                                    2 * k + lane / 8 % 2));
                const uint32_t left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
                for (int m = 0; m < 2; m++) {
                    uint32_t a[4];
                    ldmatrix_x4(a,
                                sx + place<kSwizzle>(row + 16 * m + lane % 16, 2 * k + lane / 16));
                    mma_m16n8k16_bf16(acc[m][2 * n], a, left);
                    mma_m16n8k16_bf16(acc[m][2 * n + 1], a, right);
                }
            }
        __syncthreads();
    }
    for (int m = 0; m < 2; m++)
        for (int n = 0; n < 4; n++)
            for (int i = 0; i < 4; i++)
                y[size_t(n0 + row + 16 * m + lane / 4 + i / 2 * 8) * M + m0 + col + 8 * n +
                  lane % 4 * 2 + i % 2] = as_elem<bf16>(acc[m][n][i]);
}

}  // namespace

void matmul_ladder() {
    const int N = 128, K = 128, M = 128;
    const std::vector<bf16> x = random_bf16(size_t(N) * K, "x"),
                            w = random_bf16(size_t(M) * K, "w");
    std::vector<float> expected(size_t(N) * M),
        scratch(matmul_workspace_bytes(N, K, M, kCpu) / sizeof(float) + 1);
    matmul_forward(expected.data(), widen(x).data(), widen(w).data(), nullptr, N, K, M,
                   {scratch.data(), scratch.size() * sizeof(float)}, kCpu);
    const Device<bf16> gx(x), gw(w), y(expected.size());
    const auto clear = [&] { memory_zero(y, expected.size() * sizeof(bf16), kCuda); };
    const auto error = [&] { return relative_error(y.host(), expected); };
    Ladder ladder("matmul, 128 x 128 x 128, bf16", 3.0 * N * K * sizeof(bf16), 0x1.1p-8);
    const auto rung = [&](const char* name, const char* buys, auto kernel, dim3 grid, dim3 block) {
        ladder.rung(
            name, buys, clear,
            [=, &y, &gx, &gw] { launch(kernel, grid, block, 0, kCuda, y, gx, gw, N, K, M); },
            error);
    };
    rung("a thread an output", "nothing yet", thread_an_output, dim3(M / 128, N), 128);
    rung("shared tiles of 32 x 32", "1/32 of the requests to memory, whole sectors", shared_tiles,
         dim3(M / 32, N / 32), dim3(32, 32));
    rung("4 x 4 outputs a thread", "half the bytes; a quarter of the shared reads a product",
         register_tiles, dim3(M / 64, N / 64), 256);
    rung("tensor cores", "4096 multiply-adds an instruction; 16-byte loads", tensor_cores<false>,
         dim3(M / 64, N / 64), 128);
    rung("swizzled tiles", "no bank conflicts", tensor_cores<true>, dim3(M / 64, N / 64), 128);
    ladder.rung(
        "shipped fallback: 128 x 128, two stages", "half the bytes; the next slice loads meanwhile",
        clear,
        [&] {
            gemm::run<bf16>(y, {gx, N}, gemm::Major::Row, {gw, M}, gemm::Major::Row, K, false,
                            kCuda);
        },
        error);
#ifndef CUSIM
    const size_t bytes = matmul_workspace_bytes(N, K, M, kCuda);
    const Device<char> ws(bytes);
    ladder.rung(
        "shipped: cuBLASLt", "instructions and tiles chosen for this GPU", clear,
        [&] {
            matmul_forward<bf16>(y, gx, gw, nullptr, N, K, M, {ws, bytes}, kCuda);
        },
        error);
#endif
}
