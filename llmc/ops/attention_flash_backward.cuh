// llmc/ops/attention_flash_backward.cuh: causal attention backward on tensor cores, deterministic.
//
// Two kernels of one shape. Each recomputes the weights P = exp(S - lse) tile by tile and forms
// dS = P * (dout v^T - delta):
//   keys kernel:    a warp owns 16 keys; query tiles stream by;  dv += P^T dout, dk += dS^T q
//   queries kernel: a warp owns 16 queries; key tiles stream by; dq += dS k
// The keys kernel works on transposed scores (keys down, queries across), so that P^T and dS^T are
// where the second product wants its left operand: in the registers of the warp that owns the keys.
// Every sum belongs to one warp and runs in a fixed order: no atomics, equal bits on every run.
//
// Global memory: what a block owns once, what streams by once a block. Bound by tensor cores (seven
// products of T^2 HS / 2 multiply-adds a head) and shared memory bandwidth.
// Dao 2023, arXiv:2307.08691, section 3.1.2 and algorithm 2.
#pragma once
#include "llmc/ops/attention_flash.cuh"

namespace flash {

// kN: rows of a streaming tile. kRegisters: the operands of the owned rows stay in registers.
template <int kHS_, int kN_, bool kRegisters_>
struct BackwardTile {
    static constexpr int kHS = kHS_, kM = 16 * kWarps, kN = kN_;
    static constexpr bool kRegisters = kRegisters_;
    static constexpr size_t kSharedBytes =
        (2 * kM + 2 * kStages * kN) * kHS * sizeof(bf16) + 2 * kStages * kN * sizeof(float);
};
template <int kHS>
using BackwardTileFor =
    std::conditional_t<kHS == 64, BackwardTile<64, 64, true>, BackwardTile<128, 32, false>>;

// The two matrices of rows that a block owns, and the products of a warp's 16 rows with a tile.
template <class Tile>
struct Owned {
    static constexpr int kHS = Tile::kHS, kN = Tile::kN, kSteps = kHS / 16;
    const bf16* shared;
    uint32_t a[Tile::kRegisters ? kSteps : 1][1][4];

    __device__ __forceinline__ void load() {
        if constexpr (Tile::kRegisters) {
#pragma unroll
            for (int k = 0; k < kSteps; k++) load_a<kHS>(a[k][0], shared, threadIdx.x / 32 * 16, k);
        }
    }
    __device__ __forceinline__ void times_transposed(float (&scores)[1][kN / 8][4],
                                                     const bf16* tile) const {
        if constexpr (Tile::kRegisters) {
#pragma unroll
            for (int k = 0; k < kSteps; k++) scores_step<kHS, 1, kN>(scores, a[k], tile, k);
        } else {
            rows_times_tile_transposed<kHS, 1, kN>(scores, shared, threadIdx.x / 32 * 16, tile);
        }
    }
};

// P^T from transposed scores: keys from `mine` on down, queries from t0 on across.
template <int kN>
__device__ __forceinline__ void transposed_weights(float (&w)[1][kN / 8][4], const float* tile_lse,
                                                   int t0, int mine, float scale_log2, int lane) {
#pragma unroll
    for (int n = 0; n < kN / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int column = n * 8 + lane % 4 * 2 + i % 2;
            const bool seen = mine + lane / 4 + i / 2 * 8 <= t0 + column;
            w[0][n][i] = seen ? exp2f(w[0][n][i] * scale_log2 - tile_lse[column]) : 0.f;
        }
}

// dS^T = P^T * (v dout^T - delta).
template <int kN>
__device__ __forceinline__ void transposed_gradient(float (&w)[1][kN / 8][4],
                                                    const float (&dw)[1][kN / 8][4],
                                                    const float* tile_delta, int lane) {
#pragma unroll
    for (int n = 0; n < kN / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            w[0][n][i] *= dw[0][n][i] - tile_delta[n * 8 + lane % 4 * 2 + i % 2];
}

// ---- dk and dv. Blocks: (key tiles, KV, B); the first keys, which most queries see, start first.
template <class Tile>
__global__ void __launch_bounds__(kThreads, 2)
    backward_keys_kernel(bf16* __restrict__ dqkv, const bf16* __restrict__ dout,
                         const bf16* __restrict__ qkv, const float* __restrict__ lse,
                         const float* __restrict__ delta, AttentionShape p) {
    constexpr int kHS = Tile::kHS, kM = Tile::kM, kN = Tile::kN, kStage = kN * kHS;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int first = blockIdx.x * kM, mine = first + 16 * warp;
    const int kv = blockIdx.y, b = blockIdx.z, group = p.H / p.KV;

    bf16* sk = dyn_smem<bf16>();                                     // (kM, kHS)
    bf16* sv = sk + kM * kHS;                                        // (kM, kHS)
    bf16* sq = sv + kM * kHS;                                        // (kStages, kN, kHS)
    bf16* sdo = sq + kStages * kStage;                               // (kStages, kN, kHS)
    float* slse = reinterpret_cast<float*>(sdo + kStages * kStage);  // (kStages, kN)
    float* sdelta = slse + kStages * kN;                             // (kStages, kN)

    // All query tiles from the diagonal on, of all heads of the group, in one loop.
    const int tile0 = first / kN, tiles = ceil_div(p.T, kN) - tile0, rounds = group * tiles;
    const auto fetch = [&](int round) {
        const int h = kv * group + round / tiles, t0 = (tile0 + round % tiles) * kN;
        const int stage = round % kStages;
        tile_fetch<kHS, kN>(sq + stage * kStage, qkv + p.query_at(b, h), p.packed(), t0, p.T);
        tile_fetch<kHS, kN>(sdo + stage * kStage, dout + p.out_at(b, h), p.width(), t0, p.T);
        if (threadIdx.x < kN) {
            // Queries beyond T get weight exp(-infinity) = 0.
            const int t = t0 + threadIdx.x;
            slse[stage * kN + threadIdx.x] = t < p.T ? lse[p.lse_at(b, h) + t] * kLog2e : INFINITY;
            sdelta[stage * kN + threadIdx.x] = t < p.T ? delta[p.lse_at(b, h) + t] : 0.f;
        }
    };

    tile_fetch<kHS, kM>(sk, qkv + p.key_at(b, kv), p.packed(), first, p.T);
    tile_fetch<kHS, kM>(sv, qkv + p.value_at(b, kv), p.packed(), first, p.T);
    fetch(0);
    cp_async_commit();

    Owned<Tile> k{sk, {}}, v{sv, {}};
    float dk[1][kHS / 8][4] = {}, dv[1][kHS / 8][4] = {};
    const float scale_log2 = p.scale * kLog2e;
    for (int round = 0; round < rounds; round++) {
        if (round + 1 < rounds) fetch(round + 1);
        cp_async_commit();
        cp_async_wait_group<1>();
        __syncthreads();
        if (round == 0) {
            k.load();
            v.load();
        }
        const int stage = round % kStages, t0 = (tile0 + round % tiles) * kN;
        if (t0 + kN > mine) {  // else all queries lie before all keys of this warp
            const bf16 *tile_q = sq + stage * kStage, *tile_do = sdo + stage * kStage;
            const float *tile_lse = slse + stage * kN, *tile_delta = sdelta + stage * kN;

            // P^T, then dv += P^T dout.
            float w[1][kN / 8][4] = {}, dw[1][kN / 8][4] = {};
            k.times_transposed(w, tile_q);
            transposed_weights<kN>(w, tile_lse, t0, mine, scale_log2, lane);
            weights_times_tile<kHS, 1, kN>(dv, w, tile_do);

            // dS^T, then dk += dS^T q.
            v.times_transposed(dw, tile_do);
            transposed_gradient<kN>(w, dw, tile_delta, lane);
            weights_times_tile<kHS, 1, kN>(dk, w, tile_q);
        }
        __syncthreads();
    }
    const float scale[1][2] = {{p.scale, p.scale}}, one[1][2] = {{1, 1}};
    rows_store<kHS, 1>(dqkv + p.key_at(b, kv), p.packed(), first, p.T, dk, scale, sk);
    rows_store<kHS, 1>(dqkv + p.value_at(b, kv), p.packed(), first, p.T, dv, one, sv);
}

// ---- dq. Blocks: (query tiles, H, B); the last queries, which have most to do, start first.
template <class Tile>
__global__ void __launch_bounds__(kThreads, 2)
    backward_queries_kernel(bf16* __restrict__ dqkv, const bf16* __restrict__ dout,
                            const bf16* __restrict__ qkv, const float* __restrict__ lse,
                            const float* __restrict__ delta, AttentionShape p) {
    constexpr int kHS = Tile::kHS, kM = Tile::kM, kN = Tile::kN, kStage = kN * kHS;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int first = (gridDim.x - 1 - blockIdx.x) * kM, mine = first + 16 * warp;
    const int h = blockIdx.y, b = blockIdx.z;
    const bf16 *keys = qkv + p.key_at(b, p.kv_head(h)), *values = qkv + p.value_at(b, p.kv_head(h));

    bf16* sq = dyn_smem<bf16>();       // (kM, kHS)
    bf16* sdo = sq + kM * kHS;         // (kM, kHS)
    bf16* sk = sdo + kM * kHS;         // (kStages, kN, kHS)
    bf16* sv = sk + kStages * kStage;  // (kStages, kN, kHS)
    const auto fetch = [&](int tile) {
        const int at = tile % kStages * kStage;
        tile_fetch<kHS, kN>(sk + at, keys, p.packed(), tile * kN, p.T);
        tile_fetch<kHS, kN>(sv + at, values, p.packed(), tile * kN, p.T);
    };
    tile_fetch<kHS, kM>(sq, qkv + p.query_at(b, h), p.packed(), first, p.T);
    tile_fetch<kHS, kM>(sdo, dout + p.out_at(b, h), p.width(), first, p.T);
    fetch(0);
    cp_async_commit();

    // A lane's two rows: 8 j + lane / 4. Rows beyond T have weight exp(-infinity) = 0.
    float row_lse[2], row_delta[2];
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const int t = mine + 8 * j + lane / 4;
        row_lse[j] = t < p.T ? lse[p.lse_at(b, h) + t] * kLog2e : INFINITY;
        row_delta[j] = t < p.T ? delta[p.lse_at(b, h) + t] : 0.f;
    }
    Owned<Tile> q{sq, {}}, dout_rows{sdo, {}};
    float dq[1][kHS / 8][4] = {};
    const float scale_log2 = p.scale * kLog2e;
    const int tiles = ceil_div(min(first + kM, p.T), kN);
    for (int tile = 0; tile < tiles; tile++) {
        if (tile + 1 < tiles) fetch(tile + 1);
        cp_async_commit();
        cp_async_wait_group<1>();
        __syncthreads();
        if (tile == 0) {
            q.load();
            dout_rows.load();
        }
        const int u0 = tile * kN;
        if (u0 < mine + 16) {  // else all keys lie behind all queries of this warp
            const bf16 *tile_k = sk + tile % kStages * kStage,
                       *tile_v = sv + tile % kStages * kStage;
            float w[1][kN / 8][4] = {}, dw[1][kN / 8][4] = {};
            q.times_transposed(w, tile_k);
            dout_rows.times_transposed(dw, tile_v);
#pragma unroll
            for (int n = 0; n < kN / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int key = u0 + n * 8 + lane % 4 * 2 + i % 2, j = i / 2;
                    const bool seen = key <= mine + 8 * j + lane / 4;
                    const float weight = seen ? exp2f(w[0][n][i] * scale_log2 - row_lse[j]) : 0.f;
                    w[0][n][i] = weight * (dw[0][n][i] - row_delta[j]);
                }
            weights_times_tile<kHS, 1, kN>(dq, w, tile_k);
        }
        __syncthreads();
    }
    const float scale[1][2] = {{p.scale, p.scale}};
    rows_store<kHS, 1>(dqkv + p.query_at(b, h), p.packed(), first, p.T, dq, scale, sq);
}

template <int kHS>
void backward_launch(bf16* dqkv, const bf16* dout, const bf16* qkv, const float* lse,
                     const float* delta, const AttentionShape& p, CudaStream s) {
    using Tile = BackwardTileFor<kHS>;
    launch(backward_keys_kernel<Tile>, dim3(ceil_div(p.T, Tile::kM), p.KV, p.B), kThreads,
           Tile::kSharedBytes, s, dqkv, dout, qkv, lse, delta, p);
    launch(backward_queries_kernel<Tile>, dim3(ceil_div(p.T, Tile::kM), p.H, p.B), kThreads,
           Tile::kSharedBytes, s, dqkv, dout, qkv, lse, delta, p);
}

inline void backward(bf16* dqkv, const bf16* dout, const bf16* qkv, const float* lse,
                     const float* delta, const AttentionShape& p, CudaStream s) {
    if (p.HS == 64) return backward_launch<64>(dqkv, dout, qkv, lse, delta, p, s);
    backward_launch<128>(dqkv, dout, qkv, lse, delta, p, s);
}

}  // namespace flash
