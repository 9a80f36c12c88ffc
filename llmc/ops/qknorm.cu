// The norm of query and key heads on CUDA.
//
// Forward: a warp a head. The head is read once, in packets that stay in registers, written as it
// was to qk and normalised to where it came from. Bytes an element: read qkv, write qkv and qk.
// Backward: a warp takes every so-many-th head; its shares of dqw and dkw grow in shared memory,
// each lane at its own places. A block adds its warps' in order and leaves one row of partial
// sums, which a second kernel adds in order. No atomics, so equal inputs give equal bits. Bytes:
// read dqkv and qk, write dqkv. The bandwidth of device memory bounds both.
#include "llmc/ops/qknorm.h"

#include <algorithm>

#include "llmc/ops/kernel.cuh"
#include "llmc/ops/partial_sums.cuh"

namespace {

constexpr int kWarps = 8, kMostBlocks = 512;
constexpr int kMostHead = 512;  // elements of a head: packets of a lane times 32 lanes

int columns(int HS) {
    return ceil_div(HS, 8) * 8;
}

// Where a warp keeps its share of a gradient in shared memory: element k of lane's packet p in line
// p * size + k, and lines so far apart that both orders, a line by its lanes and the columns as
// they lie in memory, meet no bank twice.
template <class Elem>
struct Lines {
    static constexpr int kSize = Packed128<Elem>::size, kStride = 32 + 32 / kSize;
    static __device__ __forceinline__ int at(int p, int k, int lane) {
        return (p * kSize + k) * kStride + lane;
    }
    static __device__ __forceinline__ int at_column(int c) {
        return at(c / (32 * kSize), c % kSize, c / kSize % 32);
    }
    static __host__ __device__ int floats(int HS) {
        return ceil_div(HS, 32 * kSize) * kSize * kStride;
    }
};

// Where head i of all is: head i % heads of row i / heads.
struct Head {
    size_t packed;  // first element in rows with values, (N, (H+2*KV)*HS)
    size_t alone;   // in rows without, (N, (H+KV)*HS)
    bool query;
};
__device__ __forceinline__ Head head_at(size_t i, int H, int KV, int HS) {
    const size_t n = i / (H + KV);
    const int h = int(i % (H + KV));
    return {(n * (H + 2 * KV) + h) * HS, i * HS, h < H};
}

template <class Elem, bool kAligned>
__global__ void __launch_bounds__(32 * kWarps, 4)
    qknorm_forward_kernel(Elem* qkv, Elem* __restrict__ qk, float* __restrict__ rstd,
                          const Elem* __restrict__ qw, const Elem* __restrict__ kw, size_t heads,
                          int H, int KV, int HS, float eps) {
    using Packet = Packed128<Elem>;
    constexpr int kPackets = kMostHead / (32 * Packet::size);
    const int lane = threadIdx.x % 32;
    const size_t i = size_t(blockIdx.x) * kWarps + threadIdx.x / 32;
    if (i >= heads) return;
    const Head head = head_at(i, H, KV, HS);
    const Elem* w = head.query ? qw : kw;

    // Load, keep, reduce.
    Packet x[kPackets];
    float squares = 0;
#pragma unroll
    for (int p = 0; p < kPackets; p++) {
        const int c = (p * 32 + lane) * Packet::size;
        if (c >= HS) break;
        x[p] = packet_load<kAligned>(qkv + head.packed, c, HS);
        packet_store<kAligned>(qk + head.alone, c, HS, x[p]);
#pragma unroll
        for (int k = 0; k < Packet::size; k++) squares += as_float(x[p][k]) * as_float(x[p][k]);
    }
    const float r = 1 / sqrtf(warp_sum(squares) / HS + eps);

    // Store.
#pragma unroll
    for (int p = 0; p < kPackets; p++) {
        const int c = (p * 32 + lane) * Packet::size;
        if (c >= HS) break;
        const Packet wv = packet_load_shared<kAligned>(w, c, HS);
        Packet y;
#pragma unroll
        for (int k = 0; k < Packet::size; k++)
            y[k] = as_elem<Elem>(as_float(x[p][k]) * r * as_float(wv[k]));
        packet_store<kAligned>(qkv + head.packed, c, HS, y);
    }
    if (lane == 0) rstd[i] = r;
}

// partials: (gridDim.x, 2, padded HS): each block's sums for dqw, then for dkw.
template <class Elem, bool kAligned>
__global__ void __launch_bounds__(32 * kWarps, 2)
    qknorm_backward_kernel(Elem* dqkv, float* __restrict__ partials, const Elem* __restrict__ qk,
                           const Elem* __restrict__ qw, const Elem* __restrict__ kw,
                           const float* __restrict__ rstd, size_t heads, int H, int KV, int HS,
                           int padded) {
    using Packet = Packed128<Elem>;
    constexpr int kPackets = kMostHead / (32 * Packet::size);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int share = Lines<Elem>::floats(HS);
    float* sums = dyn_smem<float>();  // (kWarps, 2, share)
    float* mine = sums + warp * 2 * share;
    for (int c = threadIdx.x; c < kWarps * 2 * share; c += 32 * kWarps) sums[c] = 0;
    __syncthreads();

    for (size_t i = size_t(blockIdx.x) * kWarps + warp; i < heads;
         i += size_t(gridDim.x) * kWarps) {
        const Head head = head_at(i, H, KV, HS);
        const Elem* w = head.query ? qw : kw;
        float* dw = head.query ? mine : mine + share;
        const float r = rstd[i];

        // Load and reduce; the weights' share.
        Packet dy[kPackets], x[kPackets];
        float sum = 0;
#pragma unroll
        for (int p = 0; p < kPackets; p++) {
            const int c = (p * 32 + lane) * Packet::size;
            if (c >= HS) break;
            dy[p] = packet_load<kAligned>(dqkv + head.packed, c, HS);
            x[p] = packet_load<kAligned>(qk + head.alone, c, HS);
            const Packet wv = packet_load_shared<kAligned>(w, c, HS);
#pragma unroll
            for (int k = 0; k < Packet::size; k++) {  // beyond HS: dy = w = 0
                const float d = as_float(dy[p][k]), xhat = as_float(x[p][k]) * r;
                sum += d * as_float(wv[k]) * xhat;
                dw[Lines<Elem>::at(p, k, lane)] += d * xhat;
            }
        }
        const float mean = warp_sum(sum) / HS;

        // Store.
#pragma unroll
        for (int p = 0; p < kPackets; p++) {
            const int c = (p * 32 + lane) * Packet::size;
            if (c >= HS) break;
            const Packet wv = packet_load_shared<kAligned>(w, c, HS);
            Packet out;
#pragma unroll
            for (int k = 0; k < Packet::size; k++)
                out[k] = as_elem<Elem>(
                    r * (as_float(dy[p][k]) * as_float(wv[k]) - as_float(x[p][k]) * r * mean));
            packet_store<kAligned>(dqkv + head.packed, c, HS, out);
        }
    }
    __syncthreads();

    float* out = partials + size_t(blockIdx.x) * 2 * padded;
    for (int i = threadIdx.x; i < 2 * padded; i += 32 * kWarps) {
        const int at = i / padded * share + Lines<Elem>::at_column(i % padded);
        float sum = 0;
        for (int k = 0; k < kWarps; k++) sum += sums[k * 2 * share + at];
        out[i] = sum;
    }
}

void check_head(int HS) {
    CHECK(HS <= kMostHead, Exit::Usage, "heads are too long to be normalised on CUDA", str(HS),
          str("at most ", kMostHead));
}

int backward_blocks(int N, int H, int KV) {
    return int(std::min<size_t>(kMostBlocks, ceil_div(size_t(N) * (H + KV), size_t(kWarps))));
}

}  // namespace

template <class Elem>
void qknorm_forward(Elem* qkv, Elem* qk, float* rstd, const Elem* qw, const Elem* kw, int N, int H,
                    int KV, int HS, float eps, CudaStream s) {
    const size_t heads = size_t(N) * (H + KV);
    if (heads == 0) return;
    check_head(HS);
    const bool aligned = rows_aligned<Elem>(HS, qkv, qk, qw, kw);
    launch(aligned ? qknorm_forward_kernel<Elem, true> : qknorm_forward_kernel<Elem, false>,
           blocks_for(heads, kWarps), 32 * kWarps, 0, s, qkv, qk, rstd, qw, kw, heads, H, KV, HS,
           eps);
}

size_t qknorm_backward_workspace_bytes(int N, int H, int KV, int HS, CudaStream) {
    return size_t(backward_blocks(N, H, KV)) * 2 * columns(HS) * sizeof(float);
}

template <class Elem>
void qknorm_backward(Elem* dqkv, float* dqw, float* dkw, const Elem* qk, const Elem* qw,
                     const Elem* kw, const float* rstd, int N, int H, int KV, int HS, Workspace ws,
                     CudaStream s) {
    const size_t heads = size_t(N) * (H + KV);
    if (heads == 0) return;
    check_head(HS);
    workspace_check("qknorm_backward", ws, qknorm_backward_workspace_bytes(N, H, KV, HS, s));
    const int blocks = backward_blocks(N, H, KV), padded = columns(HS);
    float* partials = static_cast<float*>(ws.data);
    const bool aligned = rows_aligned<Elem>(HS, dqkv, qk, qw, kw);
    launch(aligned ? qknorm_backward_kernel<Elem, true> : qknorm_backward_kernel<Elem, false>,
           blocks, 32 * kWarps, kWarps * 2 * Lines<Elem>::floats(HS) * sizeof(float), s, dqkv,
           partials, qk, qw, kw, rstd, heads, H, KV, HS, padded);
    add_partial_sums(dqw, dkw, partials, blocks, padded, HS, s);
}

// clang-format off
#define INSTANTIATE(Elem)                                                                          \
    template void qknorm_forward(Elem*, Elem*, float*, const Elem*, const Elem*, int, int, int,    \
                                 int, float, CudaStream);                                          \
    template void qknorm_backward(Elem*, float*, float*, const Elem*, const Elem*, const Elem*,    \
                                  const float*, int, int, int, int, Workspace, CudaStream);
// clang-format on
INSTANTIATE(float)
INSTANTIATE(bf16)
