// dev/ladder/attention.cu: causal attention forward, one head of size 64, bf16. First the T x T
// matrix goes, then the repeated reads of keys and values, then the scalar arithmetic, then the
// bank conflicts, then the waiting. Derivation: dev/doc/attention.md.
#include "dev/ladder/ladder.cuh"
#include "llmc/core/tensorop.cuh"
#include "llmc/ops/attention.h"
#include "llmc/ops/attention_flash_forward.cuh"
#include "llmc/ops/attention_simt.cuh"

namespace {

constexpr int kHS = 64;

// 1. Three kernels, as the formula reads; scores and weights are T x T floats in memory.
__global__ void scores(float* s, const bf16* qkv, int T, float scale) {
    const int u = blockIdx.x * blockDim.x + threadIdx.x, t = blockIdx.y;
    if (u >= T) return;
    float sum = 0;
    for (int d = 0; d < kHS; d++)
        sum +=
            as_float(qkv[size_t(t) * 3 * kHS + d]) * as_float(qkv[size_t(u) * 3 * kHS + kHS + d]);
    s[size_t(t) * T + u] = u <= t ? sum * scale : -INFINITY;
}
__global__ void softmax(float* s, float* lse, int T) {
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= T) return;
    float most = -INFINITY, sum = 0;
    for (int u = 0; u < T; u++) most = fmaxf(most, s[size_t(t) * T + u]);
    for (int u = 0; u < T; u++) sum += expf(s[size_t(t) * T + u] - most);
    for (int u = 0; u < T; u++) s[size_t(t) * T + u] = expf(s[size_t(t) * T + u] - most) / sum;
    lse[t] = most + logf(sum);
}
__global__ void weighted_values(bf16* out, const float* s, const bf16* qkv, int T) {
    const int d = threadIdx.x, t = blockIdx.x;
    float sum = 0;
    for (int u = 0; u < T; u++)
        sum += s[size_t(t) * T + u] * as_float(qkv[size_t(u) * 3 * kHS + 2 * kHS + d]);
    out[size_t(t) * kHS + d] = as_elem<bf16>(sum);
}

// 2. A warp a query with a running softmax: nothing of size T x T, half of the work is skipped.
// Each query still reads all its keys and values.
__global__ void warp_a_query(bf16* out, float* lse, const bf16* qkv, int T, float scale) {
    const int lane = threadIdx.x % 32, t = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (t >= T) return;
    const bf16* q = qkv + size_t(t) * 3 * kHS;
    float most = -INFINITY, sum = 0, acc[2] = {};
    for (int u = 0; u <= t; u++) {
        const bf16 *k = qkv + size_t(u) * 3 * kHS + kHS, *v = k + kHS;
        const float s = scale * warp_sum(as_float(q[lane]) * as_float(k[lane]) +
                                         as_float(q[lane + 32]) * as_float(k[lane + 32]));
        const float old = most;
        most = fmaxf(most, s);
        const float shrink = expf(old - most), p = expf(s - most);
        sum = sum * shrink + p;
        acc[0] = acc[0] * shrink + p * as_float(v[lane]);
        acc[1] = acc[1] * shrink + p * as_float(v[lane + 32]);
    }
    out[size_t(t) * kHS + lane] = as_elem<bf16>(acc[0] / sum);
    out[size_t(t) * kHS + lane + 32] = as_elem<bf16>(acc[1] / sum);
    if (lane == 0) lse[t] = most + logf(sum);
}

// 4., 5. Tensor cores; 64 queries a block, 16 a warp, tiles of 64 keys, one stage: load, wait, use.
template <bool kSwizzle>
__device__ int place(int row, int chunk) {
    return row * kHS + ((kSwizzle ? chunk ^ (row & 7) : chunk) << 3);
}
template <bool kSwizzle>
__device__ void load_tile(bf16* tile, const bf16* src, int first, int T) {
    for (int i = threadIdx.x; i < 64 * 8; i += 128) {
        const int row = i / 8, chunk = i % 8;
        Packed128<bf16> x{};
        if (first + row < T) x = load128(src + size_t(first + row) * 3 * kHS + chunk * 8);
        store128(tile + place<kSwizzle>(row, chunk), x);
    }
}
template <bool kSwizzle>
__global__ void __launch_bounds__(128, 2)
    tensor_cores(bf16* out, float* lse, const bf16* qkv, int T, float scale) {
    __shared__ __align__(128) bf16 sq[64 * kHS], sk[64 * kHS], sv[64 * kHS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * 64,
              mine = first + warp * 16;
    load_tile<kSwizzle>(sq, qkv, first, T);
    float acc[8][4] = {}, most[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    for (int u0 = 0; u0 < min(first + 64, T); u0 += 64) {
        __syncthreads();
        load_tile<kSwizzle>(sk, qkv + kHS, u0, T);
        load_tile<kSwizzle>(sv, qkv + 2 * kHS, u0, T);
        __syncthreads();
        float s[8][4] = {};
        for (int k = 0; k < 4; k++) {
            uint32_t a[4];
            ldmatrix_x4(a, sq + place<kSwizzle>(warp * 16 + lane % 16, 2 * k + lane / 16));
            for (int n = 0; n < 4; n++) {
                uint32_t b[4];
                ldmatrix_x4(b, sk + place<kSwizzle>(n * 16 + lane / 16 * 8 + lane % 8,
                                                    2 * k + lane / 8 % 2));
                const uint32_t left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
                mma_m16n8k16_bf16(s[2 * n], a, left);
                mma_m16n8k16_bf16(s[2 * n + 1], a, right);
            }
        }
        for (int n = 0; n < 8; n++)
            for (int i = 0; i < 4; i++)
                if (u0 + n * 8 + lane % 4 * 2 + i % 2 > mine + lane / 4 + i / 2 * 8)
                    s[n][i] = -INFINITY;
        for (int j = 0; j < 2; j++) {
            const float shrink = flash::softmax_step(s, j, most[j], sum[j], scale * flash::kLog2e);
            for (int n = 0; n < 8; n++) acc[n][2 * j] *= shrink, acc[n][2 * j + 1] *= shrink;
        }
        for (int k = 0; k < 4; k++) {
            const uint32_t a[4] = {flash::pack_bf16(s[2 * k][0], s[2 * k][1]),
                                   flash::pack_bf16(s[2 * k][2], s[2 * k][3]),
                                   flash::pack_bf16(s[2 * k + 1][0], s[2 * k + 1][1]),
                                   flash::pack_bf16(s[2 * k + 1][2], s[2 * k + 1][3])};
            for (int n = 0; n < 4; n++) {
                uint32_t b[4];
                ldmatrix_x4_trans(b, sv + place<kSwizzle>(k * 16 + lane % 16, 2 * n + lane / 16));
                const uint32_t left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
                mma_m16n8k16_bf16(acc[2 * n], a, left);
                mma_m16n8k16_bf16(acc[2 * n + 1], a, right);
            }
        }
    }
    for (int j = 0; j < 2; j++) {
        float total = sum[j];
        total += __shfl_xor_sync(0xffffffffu, total, 1);
        total += __shfl_xor_sync(0xffffffffu, total, 2);
        const int t = mine + lane / 4 + 8 * j;
        if (t >= T) continue;
        for (int n = 0; n < 8; n++)
            *reinterpret_cast<uint32_t*>(out + size_t(t) * kHS + n * 8 + lane % 4 * 2) =
                flash::pack_bf16(acc[n][2 * j] / total, acc[n][2 * j + 1] / total);
        if (lane % 4 == 0) lse[t] = most[j] * scale + logf(total);
    }
}

}  // namespace

void attention_ladder() {
    const int T = 256;
    const float scale = 1 / std::sqrt(float(kHS));
    const std::vector<bf16> qkv = random_bf16(size_t(T) * 3 * kHS, "qkv");
    std::vector<float> expected(size_t(T) * kHS), lse(T),
        scratch(attention_forward_workspace_bytes(1, T, 1, 1, kHS, kCpu) / sizeof(float) + 1);
    attention_forward(expected.data(), lse.data(), widen(qkv).data(), 1, T, 1, 1, kHS,
                      {scratch.data(), scratch.size() * sizeof(float)}, kCpu);
    const Device<bf16> gqkv(qkv), out(expected.size());
    const Device<float> glse(T), weights(size_t(T) * T);
    const auto clear = [&] {
        memory_zero(out, expected.size() * sizeof(bf16), kCuda);
        memory_zero(glse, T * sizeof(float), kCuda);
    };
    const auto error = [&] {
        double worst = relative_error(out.host(), expected);
        const std::vector<float> found = glse.host();
        for (int t = 0; t < T; t++) worst = std::max(worst, std::fabs(double(found[t]) - lse[t]));
        return worst;
    };
    const AttentionShape p{1, T, 1, 1, kHS, scale};
    // Weights and outputs are rounded to bf16 (2^-8 each), and out averages values of up to 4.
    Ladder ladder("attention forward, T = 256, one head of 64, bf16",
                  4.0 * T * kHS * sizeof(bf16) + T * sizeof(float), 5 * 0x1p-8);
    ladder.rung(
        "three kernels", "nothing yet", clear,
        [&] {
            launch(scores, dim3(T / 64, T), 64, 0, kCuda, weights, gqkv, T, scale);
            launch(softmax, T / 64, 64, 0, kCuda, weights, glse, T);
            launch(weighted_values, T, kHS, 0, kCuda, out, weights, gqkv, T);
        },
        error);
    ladder.rung(
        "a warp a query, running softmax", "no T x T matrix, half the work, one kernel", clear,
        [&] { launch(warp_a_query, T / 8, 256, 0, kCuda, out, glse, gqkv, T, scale); }, error);
    ladder.rung(
        "shared tiles, 32 queries a block (serves fp32)", "keys and values requested 1/32 as often",
        clear, [&] { simt::forward<bf16>(out, glse, gqkv, p, kCuda); }, error);
    ladder.rung(
        "tensor cores, 64 queries a block", "4096 multiply-adds an instruction; half the requests",
        clear,
        [&] { launch(tensor_cores<false>, T / 64, 128, 0, kCuda, out, glse, gqkv, T, scale); },
        error);
    ladder.rung(
        "swizzled tiles", "no bank conflicts", clear,
        [&] { launch(tensor_cores<true>, T / 64, 128, 0, kCuda, out, glse, gqkv, T, scale); },
        error);
    ladder.rung(
        "shipped: two stages, 128 queries a block",
        "copies behind the arithmetic, half the requests, output by whole sectors", clear,
        [&] { flash::forward(out, glse, gqkv, p, kCuda); }, error);
}
