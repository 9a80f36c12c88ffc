// llmc/ops/norm.cuh: layernorm and rmsnorm on CUDA, alone and fused with the residual addition
// before them. Rms leaves out the mean, the shift b and its gradient.
//
// Forward: a warp a row. The row is read once and stays in shared memory between the passes for
// mean, variance and output. Bytes an element: read x, write y; fused also read branch, write
// residual. The bandwidth of device memory bounds it.
//
// Backward: a block takes as many rows at a time as it has warps. First a warp a row: dx needs two
// sums over the row. Then a thread takes a pair of columns and adds the block's rows to its dw and
// db, which stay in shared memory. Each block leaves one row of partial sums; a second kernel adds
// these in order. No atomics, so equal inputs give equal bits. Bytes an element: read dy and x,
// write dx (fused: read and write dresidual); bandwidth again. The partial sums add
// 16 * blocks / N bytes to that: 4 % at N = 8192 and C = 768, less for more rows.
#pragma once
#include <algorithm>

#include "llmc/ops/kernel.cuh"
#include "llmc/ops/partial_sums.cuh"

namespace {

// ---- how rows are dealt out; depends on the sizes alone, so the bits do too
constexpr int kForwardWarps = 8, kBackwardWarps = 16, kAllBackwardWarps = 2048;
constexpr size_t kSharedMost = 227 * 1024;  // of one block, sm_90; sm_80 has 163, sm_89 99 KiB
constexpr size_t kSharedGood = 64 * 1024;   // leaves room for more than one block

// Columns of a row in shared memory: whole packets.
__host__ __device__ constexpr size_t padded(int C) {
    return ceil_div(size_t(C), size_t(8)) * 8;
}

// The most warps, a power of two, whose rows fit; `fixed` bytes are there once for the block.
int warps_that_fit(int most, size_t per_warp, size_t fixed, int C) {
    CHECK(per_warp + fixed <= kSharedMost, Exit::Usage, "rows are too long for the norm on CUDA",
          str(per_warp + fixed, " bytes of shared memory for one of ", C, " channels"),
          str("at most ", kSharedMost));
    int warps = most;
    while (warps > 1 && warps * per_warp + fixed > kSharedGood) warps /= 2;
    return warps;
}

struct BackwardPlan {
    int warps, blocks;
    size_t shared_bytes;
};
BackwardPlan backward_plan(int N, int C, size_t elem_bytes) {
    const size_t per_warp = 2 * padded(C) * elem_bytes + 2 * sizeof(float);
    const size_t fixed = 2 * padded(C) * sizeof(float);
    const int warps = warps_that_fit(kBackwardWarps, per_warp, fixed, C);
    return {warps, std::min(kAllBackwardWarps / warps, ceil_div(N, warps)),
            warps * per_warp + fixed};
}

// ---- forward
template <class Elem, bool kRms, bool kResidual, bool kAligned>
__global__ void __launch_bounds__(32 * kForwardWarps, 4)
    norm_forward_kernel(Elem* residual, Elem* __restrict__ y, float* __restrict__ mean,
                        float* __restrict__ rstd, const Elem* x, const Elem* __restrict__ branch,
                        const Elem* __restrict__ w, const Elem* __restrict__ b, int N, int C,
                        float eps) {
    using Packet = Packed128<Elem>;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int n = blockIdx.x * (blockDim.x / 32) + warp;
    if (n >= N) return;

    // Load: each lane reads back only what it stored itself, so shared memory needs no barrier.
    Elem* row = dyn_smem<Elem>() + warp * padded(C);
    const size_t first = size_t(n) * C;
    float sum = 0;
    for (int c = lane * Packet::size; c < C; c += 32 * Packet::size) {
        Packet v = packet_load<kAligned>(x + first, c, C);
        if constexpr (kResidual) {
            // The norm sees the sum as it is stored, rounded, because backward will see that too.
            const Packet add = packet_load<kAligned>(branch + first, c, C);
#pragma unroll
            for (int k = 0; k < Packet::size; k++)
                v[k] = as_elem<Elem>(as_float(v[k]) + as_float(add[k]));
            packet_store<kAligned>(residual + first, c, C, v);
        }
#pragma unroll
        for (int k = 0; k < Packet::size; k++) sum += as_float(v[k]);
        store128(row + c, v);
    }

    // Reduce: mean, then the squared distances from it (no cancellation as in E[x^2] - mean^2).
    const float m = kRms ? 0.f : warp_sum(sum) / C;
    float squares = 0;
    for (int c = lane * Packet::size; c < C; c += 32 * Packet::size) {
        const Packet v = load128(row + c);
#pragma unroll
        for (int k = 0; k < Packet::size; k++) {
            const float d = c + k < C ? as_float(v[k]) - m : 0;
            squares += d * d;
        }
    }
    const float r = 1 / sqrtf(warp_sum(squares) / C + eps);

    // Store.
    for (int c = lane * Packet::size; c < C; c += 32 * Packet::size) {
        const Packet v = load128(row + c), wv = packet_load_shared<kAligned>(w, c, C);
        Packet out, bv;
        if constexpr (!kRms) bv = packet_load_shared<kAligned>(b, c, C);
#pragma unroll
        for (int k = 0; k < Packet::size; k++) {
            float value = (as_float(v[k]) - m) * r * as_float(wv[k]);
            if constexpr (!kRms) value += as_float(bv[k]);
            out[k] = as_elem<Elem>(value);
        }
        packet_store<kAligned>(y + first, c, C, out);
    }
    if (lane == 0) {
        if constexpr (!kRms) mean[n] = m;
        rstd[n] = r;
    }
}

// ---- backward
template <class Elem>
struct alignas(2 * sizeof(Elem)) Pair {
    Elem a, b;
};

// A warp a row: keeps dy and x in shared memory, writes dx or adds to it.
template <class Elem, bool kRms, bool kResidual, bool kAligned>
__device__ __forceinline__ void row_backward(Elem* dx, Elem* dy_row, Elem* x_row, const Elem* dy,
                                             const Elem* x, const Elem* w, float m, float r,
                                             int C) {
    using Packet = Packed128<Elem>;
    const int lane = threadIdx.x % 32;
    // Load and reduce.
    float sum_g = 0, sum_gx = 0;
    for (int c = lane * Packet::size; c < C; c += 32 * Packet::size) {
        const Packet d = packet_load<kAligned>(dy, c, C), v = packet_load<kAligned>(x, c, C),
                     wv = packet_load_shared<kAligned>(w, c, C);
        store128(dy_row + c, d);
        store128(x_row + c, v);
#pragma unroll
        for (int k = 0; k < Packet::size; k++) {  // beyond C: d = w = 0
            const float g = as_float(d[k]) * as_float(wv[k]);
            sum_g += g;
            sum_gx += g * ((as_float(v[k]) - m) * r);
        }
    }
    const float mean_g = kRms ? 0.f : warp_sum(sum_g) / C, mean_gx = warp_sum(sum_gx) / C;

    // dx, from the lane's own packets.
    for (int c = lane * Packet::size; c < C; c += 32 * Packet::size) {
        const Packet d = load128(dy_row + c), v = load128(x_row + c),
                     wv = packet_load_shared<kAligned>(w, c, C);
        Packet out;
        if constexpr (kResidual) out = packet_load<kAligned>(dx, c, C);
#pragma unroll
        for (int k = 0; k < Packet::size; k++) {
            const float g = as_float(d[k]) * as_float(wv[k]), xhat = (as_float(v[k]) - m) * r;
            float value = r * (g - mean_g - xhat * mean_gx);
            if constexpr (kResidual) value += as_float(out[k]);
            out[k] = as_elem<Elem>(value);
        }
        packet_store<kAligned>(dx, c, C, out);
    }
}

// partials: (gridDim.x, 2, padded C): each block's sums for dw, then for db; Rms: (gridDim.x, 1,
// ...).
template <class Elem, bool kRms, bool kResidual, bool kAligned>
__global__ void __launch_bounds__(32 * kBackwardWarps, 1)
    norm_backward_kernel(Elem* dx, float* __restrict__ partials, const Elem* __restrict__ dy,
                         const Elem* __restrict__ x, const Elem* __restrict__ w,
                         const float* __restrict__ mean, const float* __restrict__ rstd, int N,
                         int C) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int Cp = int(padded(C));
    Elem* dy_rows = dyn_smem<Elem>();                           // (warps, Cp)
    Elem* x_rows = dy_rows + warps * Cp;                        // (warps, Cp)
    float* dw = reinterpret_cast<float*>(x_rows + warps * Cp);  // (Cp)
    float* db = dw + Cp;                                        // (Cp)
    float* means = db + Cp;                                     // (warps)
    float* rstds = means + warps;                               // (warps)
    const auto pair_at = [](float* p, int c) -> float2& {
        return *reinterpret_cast<float2*>(p + c);
    };

    // The barrier after the block's first rows makes these zeros seen.
    for (int c = threadIdx.x; c < 2 * Cp; c += blockDim.x) dw[c] = 0;

    for (int first = blockIdx.x * warps; first < N; first += gridDim.x * warps) {
        if (const int n = first + warp; n < N) {
            const size_t at = size_t(n) * C;
            const float m = kRms ? 0.f : mean[n], r = rstd[n];
            row_backward<Elem, kRms, kResidual, kAligned>(
                dx + at, dy_rows + warp * Cp, x_rows + warp * Cp, dy + at, x + at, w, m, r, C);
            if (lane == 0) {
                means[warp] = m;
                rstds[warp] = r;
            }
        }
        __syncthreads();

        // A thread a pair of columns: add the block's rows, in order.
        const int rows = min(warps, N - first);
        for (int c = 2 * threadIdx.x; c < C; c += 2 * blockDim.x) {
            float2 w_sum = pair_at(dw, c), b_sum = pair_at(db, c);
            for (int i = 0; i < rows; i++) {
                const Pair<Elem> d = *reinterpret_cast<const Pair<Elem>*>(dy_rows + i * Cp + c),
                                 v = *reinterpret_cast<const Pair<Elem>*>(x_rows + i * Cp + c);
                const float m = means[i], r = rstds[i];
                w_sum.x += as_float(d.a) * ((as_float(v.a) - m) * r);
                w_sum.y += as_float(d.b) * ((as_float(v.b) - m) * r);
                if constexpr (!kRms) b_sum.x += as_float(d.a), b_sum.y += as_float(d.b);
            }
            pair_at(dw, c) = w_sum;
            pair_at(db, c) = b_sum;
        }
        __syncthreads();  // the next rows overwrite these
    }

    float* out = partials + size_t(blockIdx.x) * (kRms ? 1 : 2) * Cp;
    for (int c = 2 * threadIdx.x; c < C; c += 2 * blockDim.x) {
        pair_at(out, c) = pair_at(dw, c);
        if constexpr (!kRms) pair_at(out, Cp + c) = pair_at(db, c);
    }
}

// ---- launches
template <bool kRms>
size_t norm_partials_bytes(int N, int C) {
    const int blocks = std::max(backward_plan(N, C, sizeof(float)).blocks,
                                backward_plan(N, C, sizeof(bf16)).blocks);
    return size_t(blocks) * (kRms ? 1 : 2) * padded(C) * sizeof(float);
}

template <bool kRms, bool kResidual, class Elem>
void norm_forward_launch(Elem* residual, Elem* y, float* mean, float* rstd, const Elem* x,
                         const Elem* branch, const Elem* w, const Elem* b, int N, int C, float eps,
                         CudaStream s) {
    if (N == 0) return;
    const size_t row_bytes = padded(C) * sizeof(Elem);
    const int warps = warps_that_fit(kForwardWarps, row_bytes, 0, C);
    const bool aligned = rows_aligned<Elem>(C, residual, y, x, branch, w, b);
    launch(aligned ? norm_forward_kernel<Elem, kRms, kResidual, true>
                   : norm_forward_kernel<Elem, kRms, kResidual, false>,
           blocks_for(N, warps), 32 * warps, warps * row_bytes, s, residual, y, mean, rstd, x,
           branch, w, b, N, C, eps);
}

template <bool kRms, bool kResidual, class Elem>
void norm_backward_launch(Elem* dx, float* dw, float* db, const Elem* dy, const Elem* x,
                          const Elem* w, const float* mean, const float* rstd, int N, int C,
                          Workspace ws, CudaStream s) {
    if (N == 0) return;
    workspace_check("backward of a norm", ws, norm_partials_bytes<kRms>(N, C));
    const BackwardPlan plan = backward_plan(N, C, sizeof(Elem));
    float* partials = static_cast<float*>(ws.data);
    launch(rows_aligned<Elem>(C, dx, dy, x, w) ? norm_backward_kernel<Elem, kRms, kResidual, true>
                                               : norm_backward_kernel<Elem, kRms, kResidual, false>,
           plan.blocks, 32 * plan.warps, plan.shared_bytes, s, dx, partials, dy, x, w, mean, rstd,
           N, C);
    add_partial_sums(dw, db, partials, plan.blocks, int(padded(C)), C, s);
}

}  // namespace
