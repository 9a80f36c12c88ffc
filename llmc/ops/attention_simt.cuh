// llmc/ops/attention_simt.cuh: causal attention with plain fp32 arithmetic, forward and backward,
// for fp32 tensors and for head sizes that the tensor-core kernels do not serve (HS <= 256).
//
// A warp owns kRows rows (queries, or keys for dk and dv) and walks over tiles of 32 rows of the
// other side. Dot products: a lane a tile row. Weighted sums: a lane every 32nd column of the head.
//   one tile:  s[r][lane] = rows[r] . tile[lane]        rows_dot
//              w[r][lane] = softmax or its gradient     in each kernel
//              acc[r]    += sum_j w[r][j] tile[j]       rows_add
// The same three lines make up forward, dq, and dk with dv. Each is bound by fp32 arithmetic and
// shared memory; memory traffic is T / (rows of a block) times the least.
#pragma once
#include "llmc/ops/attention_shape.cuh"
#include "llmc/ops/kernel.cuh"

namespace simt {

constexpr int kRows = 4, kTile = 32, kMostWarps = 8, kMostHS = 256;

// Rows of a tile in shared memory start at an odd distance: 32 lanes on 32 rows hit 32 banks.
__host__ __device__ constexpr int pitch(int HS) {
    return HS | 1;
}

// tile[i] = rows first + i of src, zeros at and beyond row T.
template <class Elem>
__device__ __forceinline__ void tile_load(float* tile, const Elem* src, size_t stride, int first,
                                          int rows, const AttentionShape& p) {
    for (int i = threadIdx.x; i < rows * p.HS; i += blockDim.x) {
        const int row = i / p.HS, d = i % p.HS;
        tile[row * pitch(p.HS) + d] =
            first + row < p.T ? as_float(src[size_t(first + row) * stride + d]) : 0.f;
    }
}

// s[r] = rows[r] . tile[lane]
__device__ __forceinline__ void rows_dot(float (&s)[kRows], const float* rows, const float* tile,
                                         int lane, int HS) {
#pragma unroll
    for (int r = 0; r < kRows; r++) s[r] = 0;
    for (int d = 0; d < HS; d++) {
        const float x = tile[lane * pitch(HS) + d];
#pragma unroll
        for (int r = 0; r < kRows; r++) s[r] += rows[r * pitch(HS) + d] * x;
    }
}

// acc[r][i] += sum_j w[r] of lane j * tile[j][lane + 32 i]. weights: (kRows, 32), this warp's own.
template <int kChunks>
__device__ __forceinline__ void rows_add(float (&acc)[kRows][kChunks], const float (&w)[kRows],
                                         float* weights, const float* tile, int lane, int HS) {
    __syncwarp();  // the weights of the last call have been read
#pragma unroll
    for (int r = 0; r < kRows; r++) weights[r * 32 + lane] = w[r];
    __syncwarp();
    for (int j = 0; j < kTile; j++)
#pragma unroll
        for (int i = 0; i < kChunks; i++) {
            const int d = lane + 32 * i;
            const float x = d < HS ? tile[j * pitch(HS) + d] : 0.f;
#pragma unroll
            for (int r = 0; r < kRows; r++) acc[r][i] += weights[r * 32 + j] * x;
        }
}

// dst[first + r] = factor[r] * acc[r], rows below T.
template <int kChunks, class Elem>
__device__ __forceinline__ void rows_store(Elem* dst, size_t stride, int first,
                                           const float (&acc)[kRows][kChunks],
                                           const float (&factor)[kRows], int lane,
                                           const AttentionShape& p) {
#pragma unroll
    for (int r = 0; r < kRows; r++)
#pragma unroll
        for (int i = 0; i < kChunks; i++)
            if (first + r < p.T && lane + 32 * i < p.HS)
                dst[size_t(first + r) * stride + lane + 32 * i] =
                    as_elem<Elem>(factor[r] * acc[r][i]);
}

// Blocks: (query tiles, H, B), the last queries, which have most to do, first.
template <class Elem, int kChunks>
__global__ void __launch_bounds__(32 * kMostWarps, 1)
    forward_kernel(Elem* __restrict__ out, float* __restrict__ lse, const Elem* __restrict__ qkv,
                   AttentionShape p) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, rows = blockDim.x / 32 * kRows;
    const int first = (gridDim.x - 1 - blockIdx.x) * rows, mine = first + warp * kRows;
    const int h = blockIdx.y, b = blockIdx.z;
    const Elem *q = qkv + p.query_at(b, h), *k = qkv + p.key_at(b, p.kv_head(h)),
               *v = qkv + p.value_at(b, p.kv_head(h));

    float* sq = dyn_smem<float>();         // (rows, pitch)
    float* sk = sq + rows * pitch(p.HS);   // (kTile, pitch)
    float* sv = sk + kTile * pitch(p.HS);  // (kTile, pitch)
    float* weights = sv + kTile * pitch(p.HS) + warp * kRows * 32;
    const float* my_q = sq + warp * kRows * pitch(p.HS);
    tile_load(sq, q, p.packed(), first, rows, p);

    float acc[kRows][kChunks] = {}, most[kRows], sum[kRows];
#pragma unroll
    for (int r = 0; r < kRows; r++) most[r] = -INFINITY, sum[r] = 0;
    const int end = min(first + rows, p.T);  // keys [0, end) matter to this block
    for (int u0 = 0; u0 < end; u0 += kTile) {
        __syncthreads();  // everyone is done with the last tile
        tile_load(sk, k, p.packed(), u0, kTile, p);
        tile_load(sv, v, p.packed(), u0, kTile, p);
        __syncthreads();
        float w[kRows];
        rows_dot(w, my_q, sk, lane, p.HS);
#pragma unroll
        for (int r = 0; r < kRows; r++) {
            // Online softmax. Tile 0 holds key 0, which every query sees: the maximum is finite.
            const float s = u0 + lane <= mine + r ? w[r] * p.scale : -INFINITY;
            const float old = most[r];
            most[r] = fmaxf(old, warp_max(s));
            const float shrink = expf(old - most[r]);
            w[r] = expf(s - most[r]);
            sum[r] = sum[r] * shrink + warp_sum(w[r]);
#pragma unroll
            for (int i = 0; i < kChunks; i++) acc[r][i] *= shrink;
        }
        rows_add(acc, w, weights, sv, lane, p.HS);
    }

    float factor[kRows];
#pragma unroll
    for (int r = 0; r < kRows; r++) {
        factor[r] = 1 / sum[r];
        if (lane == 0 && mine + r < p.T) lse[p.lse_at(b, h) + mine + r] = most[r] + logf(sum[r]);
    }
    rows_store(out + p.out_at(b, h), p.width(), mine, acc, factor, lane, p);
}

// dq. Blocks: (query tiles, H, B).
template <class Elem, int kChunks>
__global__ void __launch_bounds__(32 * kMostWarps, 1)
    backward_queries_kernel(Elem* __restrict__ dqkv, const Elem* __restrict__ dout,
                            const Elem* __restrict__ qkv, const float* __restrict__ lse,
                            const float* __restrict__ delta, AttentionShape p) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, rows = blockDim.x / 32 * kRows;
    const int first = (gridDim.x - 1 - blockIdx.x) * rows, mine = first + warp * kRows;
    const int h = blockIdx.y, b = blockIdx.z;
    const Elem *q = qkv + p.query_at(b, h), *k = qkv + p.key_at(b, p.kv_head(h)),
               *v = qkv + p.value_at(b, p.kv_head(h));

    float* sq = dyn_smem<float>();         // (rows, pitch)
    float* sdo = sq + rows * pitch(p.HS);  // (rows, pitch)
    float* sk = sdo + rows * pitch(p.HS);  // (kTile, pitch)
    float* sv = sk + kTile * pitch(p.HS);  // (kTile, pitch)
    float* weights = sv + kTile * pitch(p.HS) + warp * kRows * 32;
    tile_load(sq, q, p.packed(), first, rows, p);
    tile_load(sdo, dout + p.out_at(b, h), p.width(), first, rows, p);

    float acc[kRows][kChunks] = {}, row_lse[kRows], row_delta[kRows];
#pragma unroll
    for (int r = 0; r < kRows; r++) {
        const size_t at = p.lse_at(b, h) + mine + r;
        row_lse[r] = mine + r < p.T ? lse[at] : 0.f;
        row_delta[r] = mine + r < p.T ? delta[at] : 0.f;
    }
    const int end = min(first + rows, p.T);
    for (int u0 = 0; u0 < end; u0 += kTile) {
        __syncthreads();
        tile_load(sk, k, p.packed(), u0, kTile, p);
        tile_load(sv, v, p.packed(), u0, kTile, p);
        __syncthreads();
        float s[kRows], dp[kRows];
        rows_dot(s, sq + warp * kRows * pitch(p.HS), sk, lane, p.HS);
        rows_dot(dp, sdo + warp * kRows * pitch(p.HS), sv, lane, p.HS);
#pragma unroll
        for (int r = 0; r < kRows; r++) {
            const bool seen = u0 + lane <= mine + r && mine + r < p.T;
            s[r] = seen ? expf(s[r] * p.scale - row_lse[r]) * (dp[r] - row_delta[r]) : 0.f;
        }
        rows_add(acc, s, weights, sk, lane, p.HS);
    }
    const float factor[kRows] = {p.scale, p.scale, p.scale, p.scale};
    rows_store(dqkv + p.query_at(b, h), p.packed(), mine, acc, factor, lane, p);
}

// dk and dv. Blocks: (key tiles, KV, B). The query heads of a group are added one after another.
template <class Elem, int kChunks>
__global__ void __launch_bounds__(32 * kMostWarps, 1)
    backward_keys_kernel(Elem* __restrict__ dqkv, const Elem* __restrict__ dout,
                         const Elem* __restrict__ qkv, const float* __restrict__ lse,
                         const float* __restrict__ delta, AttentionShape p) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, rows = blockDim.x / 32 * kRows;
    const int first = blockIdx.x * rows, mine = first + warp * kRows;
    const int kv = blockIdx.y, b = blockIdx.z, group = p.H / p.KV;

    float* sk = dyn_smem<float>();          // (rows, pitch)
    float* sv = sk + rows * pitch(p.HS);    // (rows, pitch)
    float* sq = sv + rows * pitch(p.HS);    // (kTile, pitch)
    float* sdo = sq + kTile * pitch(p.HS);  // (kTile, pitch)
    float* weights = sdo + kTile * pitch(p.HS) + warp * kRows * 32;
    tile_load(sk, qkv + p.key_at(b, kv), p.packed(), first, rows, p);
    tile_load(sv, qkv + p.value_at(b, kv), p.packed(), first, rows, p);

    float dk[kRows][kChunks] = {}, dv[kRows][kChunks] = {};
    for (int h = kv * group; h < (kv + 1) * group; h++)
        for (int t0 = first / kTile * kTile; t0 < p.T; t0 += kTile) {
            __syncthreads();
            tile_load(sq, qkv + p.query_at(b, h), p.packed(), t0, kTile, p);
            tile_load(sdo, dout + p.out_at(b, h), p.width(), t0, kTile, p);
            __syncthreads();
            const int t = t0 + lane;
            const size_t at = p.lse_at(b, h) + t;
            const float lane_lse = t < p.T ? lse[at] : 0.f, lane_delta = t < p.T ? delta[at] : 0.f;
            float s[kRows], dp[kRows], w[kRows];
            rows_dot(s, sk + warp * kRows * pitch(p.HS), sq, lane, p.HS);
            rows_dot(dp, sv + warp * kRows * pitch(p.HS), sdo, lane, p.HS);
#pragma unroll
            for (int r = 0; r < kRows; r++) {
                const bool seen = mine + r <= t && t < p.T;
                w[r] = seen ? expf(s[r] * p.scale - lane_lse) : 0.f;
                s[r] = w[r] * (dp[r] - lane_delta);
            }
            rows_add(dv, w, weights, sdo, lane, p.HS);
            rows_add(dk, s, weights, sq, lane, p.HS);
        }
    const float scale[kRows] = {p.scale, p.scale, p.scale, p.scale}, one[kRows] = {1, 1, 1, 1};
    rows_store(dqkv + p.key_at(b, kv), p.packed(), mine, dk, scale, lane, p);
    rows_store(dqkv + p.value_at(b, kv), p.packed(), mine, dv, one, lane, p);
}

// ---- launches
// Warps a block: fewer for wide heads, whose rows need more shared memory.
inline int warps(int HS) {
    return HS > 128 ? 4 : 8;
}

// Bytes of shared memory with `own` matrices of the block's rows besides the two tiles.
inline size_t shared_bytes(int HS, int own) {
    const size_t rows = size_t(warps(HS)) * kRows;
    return ((own * rows + 2 * kTile) * pitch(HS) + rows * 32) * sizeof(float);
}

// f(number of 32-column chunks as a constant)
template <class F>
void with_chunks(int HS, F&& f) {
    if (HS <= 64) return f(std::integral_constant<int, 2>());
    if (HS <= 128) return f(std::integral_constant<int, 4>());
    return f(std::integral_constant<int, 8>());
}

template <class Elem>
void forward(Elem* out, float* lse, const Elem* qkv, const AttentionShape& p, CudaStream s) {
    const int rows = warps(p.HS) * kRows;
    with_chunks(p.HS, [&](auto chunks) {
        launch(forward_kernel<Elem, chunks()>, dim3(ceil_div(p.T, rows), p.H, p.B),
               32 * warps(p.HS), shared_bytes(p.HS, 1), s, out, lse, qkv, p);
    });
}

template <class Elem>
void backward(Elem* dqkv, const Elem* dout, const Elem* qkv, const float* lse, const float* delta,
              const AttentionShape& p, CudaStream s) {
    const int rows = warps(p.HS) * kRows;
    with_chunks(p.HS, [&](auto chunks) {
        launch(backward_queries_kernel<Elem, chunks()>, dim3(ceil_div(p.T, rows), p.H, p.B),
               32 * warps(p.HS), shared_bytes(p.HS, 2), s, dqkv, dout, qkv, lse, delta, p);
        launch(backward_keys_kernel<Elem, chunks()>, dim3(ceil_div(p.T, rows), p.KV, p.B),
               32 * warps(p.HS), shared_bytes(p.HS, 2), s, dqkv, dout, qkv, lse, delta, p);
    });
}

}  // namespace simt
