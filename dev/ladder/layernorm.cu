// dev/ladder/layernorm.cu: layer normalisation forward, bf16. Three looks at a row: mean, variance,
// output. What counts is how often and how the row comes from memory.
#include "dev/ladder/ladder.cuh"
#include "llmc/ops/layernorm.h"

namespace {

constexpr float kEps = 1e-5f;

// 1. A thread a row, as one would write it for one core. Neighbouring lanes read addresses C apart:
// every 2-byte load of a lane costs a sector of 32 bytes.
__global__ void thread_a_row(bf16* y, const bf16* x, const bf16* w, const bf16* b, int N, int C) {
    const int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= N) return;
    x += size_t(n) * C;
    y += size_t(n) * C;
    float mean = 0, variance = 0;
    for (int c = 0; c < C; c++) mean += as_float(x[c]);
    mean /= C;
    for (int c = 0; c < C; c++) variance += (as_float(x[c]) - mean) * (as_float(x[c]) - mean);
    const float rstd = 1 / sqrtf(variance / C + kEps);
    for (int c = 0; c < C; c++)
        y[c] = as_elem<bf16>((as_float(x[c]) - mean) * rstd * as_float(w[c]) + as_float(b[c]));
}

// 2. A warp a row. Neighbouring lanes read neighbouring elements: whole sectors. Two sums over the
// warp by shuffles; still no barrier.
__global__ void warp_a_row(bf16* y, const bf16* x, const bf16* w, const bf16* b, int N, int C) {
    const int lane = threadIdx.x % 32, n = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (n >= N) return;
    x += size_t(n) * C;
    y += size_t(n) * C;
    float sum = 0, squares = 0;
    for (int c = lane; c < C; c += 32) sum += as_float(x[c]);
    const float mean = warp_sum(sum) / C;
    for (int c = lane; c < C; c += 32) squares += (as_float(x[c]) - mean) * (as_float(x[c]) - mean);
    const float rstd = 1 / sqrtf(warp_sum(squares) / C + kEps);
    for (int c = lane; c < C; c += 32)
        y[c] = as_elem<bf16>((as_float(x[c]) - mean) * rstd * as_float(w[c]) + as_float(b[c]));
}

// 3. 16 bytes a lane: one request of a warp moves 512 bytes instead of 64.
__global__ void wide_loads(bf16* y, const bf16* x, const bf16* w, const bf16* b, int N, int C) {
    using Packet = Packed128<bf16>;
    const int lane = threadIdx.x % 32, n = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (n >= N) return;
    x += size_t(n) * C;
    y += size_t(n) * C;
    float sum = 0, squares = 0;
    for (int c = lane * 8; c < C; c += 256) {
        const Packet v = load128(x + c);
        for (int k = 0; k < 8; k++) sum += as_float(v[k]);
    }
    const float mean = warp_sum(sum) / C;
    for (int c = lane * 8; c < C; c += 256) {
        const Packet v = load128(x + c);
        for (int k = 0; k < 8; k++) squares += (as_float(v[k]) - mean) * (as_float(v[k]) - mean);
    }
    const float rstd = 1 / sqrtf(warp_sum(squares) / C + kEps);
    for (int c = lane * 8; c < C; c += 256) {
        const Packet v = load128(x + c), wv = load128(w + c), bv = load128(b + c);
        Packet out;
        for (int k = 0; k < 8; k++)
            out[k] =
                as_elem<bf16>((as_float(v[k]) - mean) * rstd * as_float(wv[k]) + as_float(bv[k]));
        store128(y + c, out);
    }
}

}  // namespace

void layernorm_ladder() {
    const int N = 64, C = 768, kThreads = 256;
    const std::vector<bf16> x = random_bf16(size_t(N) * C, "x", 2), w = random_bf16(C, "w"),
                            b = random_bf16(C, "b");
    std::vector<float> expected(x.size()), mean(N), rstd(N);
    layernorm_forward(expected.data(), mean.data(), rstd.data(), widen(x).data(), widen(w).data(),
                      widen(b).data(), N, C, kEps, kCpu);
    const Device<bf16> gx(x), gw(w), gb(b), gy(x.size());
    const Device<float> gmean(N), grstd(N);
    const auto clear = [&] { memory_zero(gy, x.size() * sizeof(bf16), kCuda); };
    const auto error = [&] { return relative_error(gy.host(), expected); };

    // One rounding to bf16 is 2^-8; sums of 768 in fp32 vanish beside it.
    Ladder ladder("layernorm forward, N = 64, C = 768, bf16", 2.0 * x.size() * sizeof(bf16),
                  0x1.1p-8);
    ladder.rung(
        "a thread a row", "nothing yet", clear,
        [&] {
            launch(thread_a_row, ceil_div(N, kThreads), kThreads, 0, kCuda, gy, gx, gw, gb, N, C);
        },
        error);
    ladder.rung(
        "a warp a row", "whole sectors", clear,
        [&] { launch(warp_a_row, ceil_div(N, 8), kThreads, 0, kCuda, gy, gx, gw, gb, N, C); },
        error);
    ladder.rung(
        "16 bytes a lane", "an eighth of the requests", clear,
        [&] { launch(wide_loads, ceil_div(N, 8), kThreads, 0, kCuda, gy, gx, gw, gb, N, C); },
        error);
    ladder.rung(
        "shipped: the row stays in shared memory", "x is requested once instead of three times",
        clear, [&] { layernorm_forward<bf16>(gy, gmean, grstd, gx, gw, gb, N, C, kEps, kCuda); },
        error);
}
