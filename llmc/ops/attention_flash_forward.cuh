// llmc/ops/attention_flash_forward.cuh: causal attention forward on tensor cores, sm_80 and later.
//
// A block owns 64 * kMI queries of one head, a warp 16 * kMI of them. Keys and values stream by in
// tiles of kN, two stages deep. Softmax is online: each row keeps its running maximum and sum, and
// what has been added up shrinks when the maximum grows. Exponentials are powers of two with
// log2(e) folded into the scale.
//
// Global memory: q read and out written once, k and v read once a block, T / (128 kMI) times on
// average (from L2, mostly). Bound by tensor cores and, next to them, by shared memory bandwidth:
// every 16 x 16 operand from shared memory feeds 2 kMI mma.
// Dao 2023, arXiv:2307.08691, section 3.1.
#pragma once
#include "llmc/ops/attention_flash.cuh"

namespace flash {

// kQueryRegisters: the queries' operands stay in registers; else they are read again for each tile.
template <int kHS_, int kMI_, int kN_, bool kQueryRegisters_, int kBlocks_>
struct ForwardTile {
    static constexpr int kHS = kHS_, kMI = kMI_, kN = kN_, kBlocks = kBlocks_;
    static constexpr bool kQueryRegisters = kQueryRegisters_;
    static constexpr int kM = 16 * kMI * kWarps;
    static constexpr size_t kSharedBytes = (kM + 2 * kStages * kN) * kHS * sizeof(bf16);
};
template <int kHS>
using ForwardTileFor = std::conditional_t<kHS == 64, ForwardTile<64, 2, 64, true, 2>,
                                          ForwardTile<128, 2, 32, false, 2>>;

// One row's online softmax over a tile: updates maximum and sum, turns scores into weights, and
// returns the factor by which what was added up before shrinks. j: which of a lane's two rows.
template <int kTiles>
__device__ __forceinline__ float softmax_step(float (&s)[kTiles][4], int j, float& most, float& sum,
                                              float scale_log2) {
    float m = most;
#pragma unroll
    for (int n = 0; n < kTiles; n++) m = fmaxf(m, fmaxf(s[n][2 * j], s[n][2 * j + 1]));
    m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 1));  // the four lanes of a quad share a row
    m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2));
    const float shrink = exp2f((most - m) * scale_log2), offset = m * scale_log2;
    float part = 0;
#pragma unroll
    for (int n = 0; n < kTiles; n++)
#pragma unroll
        for (int i = 2 * j; i < 2 * j + 2; i++) {
            s[n][i] = exp2f(s[n][i] * scale_log2 - offset);
            part += s[n][i];
        }
    most = m;
    sum = sum * shrink + part;  // this lane's quarter of the row
    return shrink;
}

// Keys behind a query get weight exp(-infinity) = 0. u0, mine: the tile's first key, the warp's
// first query.
template <int kMI, int kN>
__device__ __forceinline__ void causal_mask(float (&s)[kMI][kN / 8][4], int u0, int mine) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < kMI; m++)
#pragma unroll
        for (int n = 0; n < kN / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int key = u0 + n * 8 + lane % 4 * 2 + i % 2;
                const int query = mine + 16 * m + lane / 4 + i / 2 * 8;
                if (key > query) s[m][n][i] = -INFINITY;
            }
}

// Turns a tile's scores into weights, and shrinks what was added up before.
template <int kHS, int kMI, int kN>
__device__ __forceinline__ void softmax_rows(float (&s)[kMI][kN / 8][4],
                                             float (&acc)[kMI][kHS / 8][4], float (&most)[kMI][2],
                                             float (&sum)[kMI][2], float scale_log2) {
#pragma unroll
    for (int m = 0; m < kMI; m++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const float shrink = softmax_step(s[m], j, most[m][j], sum[m][j], scale_log2);
#pragma unroll
            for (int n = 0; n < kHS / 8; n++) {
                acc[m][n][2 * j] *= shrink;
                acc[m][n][2 * j + 1] *= shrink;
            }
        }
}

// What makes the weights of each row sum to 1, and the rows' log-sum-exp.
template <int kMI>
__device__ __forceinline__ void softmax_end(float (&factor)[kMI][2], float* lse,
                                            const float (&most)[kMI][2], const float (&sum)[kMI][2],
                                            int mine, const AttentionShape& p) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < kMI; m++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            float total = sum[m][j];
            total += __shfl_xor_sync(0xffffffffu, total, 1);
            total += __shfl_xor_sync(0xffffffffu, total, 2);
            factor[m][j] = 1 / total;
            const int t = mine + 16 * m + 8 * j + lane / 4;
            if (lane % 4 == 0 && t < p.T) lse[t] = most[m][j] * p.scale + logf(total);
        }
}

// Blocks: (query tiles, H, B); the last queries, which have most to do, start first.
template <class Tile>
__global__ void __launch_bounds__(kThreads, Tile::kBlocks)
    forward_kernel(bf16* __restrict__ out, float* __restrict__ lse, const bf16* __restrict__ qkv,
                   AttentionShape p) {
    constexpr int kHS = Tile::kHS, kMI = Tile::kMI, kM = Tile::kM, kN = Tile::kN;
    const int warp = threadIdx.x / 32;
    const int first = (gridDim.x - 1 - blockIdx.x) * kM, h = blockIdx.y, b = blockIdx.z;
    const int warp_row = warp * 16 * kMI, mine = first + warp_row;
    const bf16 *k = qkv + p.key_at(b, p.kv_head(h)), *v = qkv + p.value_at(b, p.kv_head(h));

    bf16* sq = dyn_smem<bf16>();         // (kM, kHS)
    bf16* sk = sq + kM * kHS;            // (kStages, kN, kHS)
    bf16* sv = sk + kStages * kN * kHS;  // (kStages, kN, kHS)
    const auto fetch = [&](int tile) {
        const int stage = tile % kStages * kN * kHS;
        tile_fetch<kHS, kN>(sk + stage, k, p.packed(), tile * kN, p.T);
        tile_fetch<kHS, kN>(sv + stage, v, p.packed(), tile * kN, p.T);
    };

    tile_fetch<kHS, kM>(sq, qkv + p.query_at(b, h), p.packed(), first, p.T);
    fetch(0);
    cp_async_commit();

    float acc[kMI][kHS / 8][4] = {}, most[kMI][2], sum[kMI][2];
#pragma unroll
    for (int m = 0; m < kMI; m++)
#pragma unroll
        for (int j = 0; j < 2; j++) most[m][j] = -INFINITY, sum[m][j] = 0;
    uint32_t q[Tile::kQueryRegisters ? kHS / 16 : 1][kMI][4];
    const float scale_log2 = p.scale * kLog2e;
    const int tiles = ceil_div(min(first + kM, p.T), kN);

    for (int tile = 0; tile < tiles; tile++) {
        // The next tile starts on its way before this one is used.
        if (tile + 1 < tiles) fetch(tile + 1);
        cp_async_commit();
        cp_async_wait_group<1>();
        __syncthreads();
        if (Tile::kQueryRegisters && tile == 0)
#pragma unroll
            for (int c = 0; c < kHS / 16; c++)
#pragma unroll
                for (int m = 0; m < kMI; m++) load_a<kHS>(q[c][m], sq, warp_row + 16 * m, c);

        const int u0 = tile * kN;
        if (u0 < mine + 16 * kMI) {  // else all keys lie behind all queries of this warp
            const bf16 *tile_k = sk + tile % kStages * kN * kHS,
                       *tile_v = sv + tile % kStages * kN * kHS;
            float s[kMI][kN / 8][4] = {};
            if constexpr (Tile::kQueryRegisters) {
#pragma unroll
                for (int c = 0; c < kHS / 16; c++) scores_step<kHS, kMI, kN>(s, q[c], tile_k, c);
            } else {
                rows_times_tile_transposed<kHS, kMI, kN>(s, sq, warp_row, tile_k);
            }

            // Causality matters only where the tile reaches beyond the warp's first query.
            if (u0 + kN - 1 > mine) causal_mask<kMI, kN>(s, u0, mine);
            // Tile 0 holds key 0, which every query sees: the maximum is finite from then on.
            softmax_rows<kHS, kMI, kN>(s, acc, most, sum, scale_log2);
            weights_times_tile<kHS, kMI, kN>(acc, s, tile_v);
        }
        __syncthreads();  // the next copies overwrite this stage
    }

    float factor[kMI][2];
    softmax_end<kMI>(factor, lse + p.lse_at(b, h), most, sum, mine, p);
    rows_store<kHS, kMI>(out + p.out_at(b, h), p.width(), first, p.T, acc, factor, sq);
}

template <int kHS>
void forward_launch(bf16* out, float* lse, const bf16* qkv, const AttentionShape& p, CudaStream s) {
    using Tile = ForwardTileFor<kHS>;
    launch(forward_kernel<Tile>, dim3(ceil_div(p.T, Tile::kM), p.H, p.B), kThreads,
           Tile::kSharedBytes, s, out, lse, qkv, p);
}

inline void forward(bf16* out, float* lse, const bf16* qkv, const AttentionShape& p, CudaStream s) {
    if (p.HS == 64) return forward_launch<64>(out, lse, qkv, p, s);
    forward_launch<128>(out, lse, qkv, p, s);
}

}  // namespace flash
