// Rotary position embedding on CUDA: a thread turns the pairs of one quad of elements, or of two
// quads where partners lie half a head apart, so that each access fills whole sectors.
// Bytes: reads and writes the queries and keys of qkv once; the table stays in the second-level
// cache. The bandwidth of device memory bounds it.
#include "llmc/ops/rope.h"

#include "llmc/ops/kernel.cuh"

namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ void turn(float& a, float& b, float c, float s) {
    const float before = a;
    a = before * c - b * s;
    b = before * s + b * c;
}

// Entries pair and pair + 1 of a row of the table.
template <bool kAligned>
__device__ __forceinline__ float2 table_load(const float* row, int pair, int half) {
    if constexpr (kAligned) return __ldg(reinterpret_cast<const float2*>(row + pair));
    return {row[pair], pair + 1 < half ? row[pair + 1] : 0.f};
}

// Thread i of all: group i % groups of head i / groups % (H+KV) of row i / groups / (H+KV).
template <class Elem, bool kHalf, bool kAligned>
__global__ void __launch_bounds__(kThreads, 4)
    rope_kernel(Elem* qkv, const float* __restrict__ table, size_t n, int groups, int T, int H,
                int KV, int HS, float direction) {
    const size_t i = size_t(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= n) return;
    const int half = HS / 2, heads = H + KV;
    const int group = int(i % groups), head = int(i / groups % heads);
    const size_t row = i / groups / heads;
    const float *cosines = table + row % T * HS, *sines = cosines + half;
    Elem* x = qkv + (row * (H + 2 * KV) + head) * HS;

    if constexpr (kHalf) {  // four pairs: a quad of either half
        const int pair = 4 * group;
        Quad<Elem> a = row_quad_load<kAligned>(x, pair, half);
        Quad<Elem> b = row_quad_load<kAligned>(x + half, pair, half);
        const Packed128<float> c = packet_load_shared<kAligned>(cosines, pair, half);
        const Packed128<float> s = packet_load_shared<kAligned>(sines, pair, half);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float u = as_float(a[k]), v = as_float(b[k]);
            turn(u, v, c[k], direction * s[k]);
            a[k] = as_elem<Elem>(u), b[k] = as_elem<Elem>(v);
        }
        row_quad_store<kAligned>(x, pair, half, a);
        row_quad_store<kAligned>(x + half, pair, half, b);
    } else {  // two pairs: one quad
        const int pair = 2 * group;
        const Quad<Elem> v = row_quad_load<kAligned>(x, 2 * pair, HS);
        const float2 c = table_load<kAligned>(cosines, pair, half);
        const float2 s = table_load<kAligned>(sines, pair, half);
        float a0 = as_float(v[0]), b0 = as_float(v[1]), a1 = as_float(v[2]), b1 = as_float(v[3]);
        turn(a0, b0, c.x, direction * s.x);
        turn(a1, b1, c.y, direction * s.y);
        row_quad_store<kAligned>(
            x, 2 * pair, HS,
            Quad<Elem>{as_elem<Elem>(a0), as_elem<Elem>(b0), as_elem<Elem>(a1), as_elem<Elem>(b1)});
    }
}

template <class Elem, bool kHalf>
void rope_launch(Elem* qkv, const float* table, int B, int T, int H, int KV, int HS, int direction,
                 CudaStream s) {
    // Quads of a half, or of a head.
    const int width = kHalf ? HS / 2 : HS, groups = ceil_div(width, 4);
    const bool aligned = width % 4 == 0 && quad_aligned(qkv) && quad_aligned(table);
    const size_t n = size_t(B) * T * (H + KV) * groups;
    if (n == 0) return;
    launch(aligned ? rope_kernel<Elem, kHalf, true> : rope_kernel<Elem, kHalf, false>,
           blocks_for(n, kThreads), kThreads, 0, s, qkv, table, n, groups, T, H, KV, HS,
           float(direction));
}

}  // namespace

template <class Elem>
void rope(Elem* qkv, const float* table, int B, int T, int H, int KV, int HS, RopePairs pairs,
          int direction, CudaStream s) {
    const auto run = pairs == RopePairs::Half ? rope_launch<Elem, true> : rope_launch<Elem, false>;
    run(qkv, table, B, T, H, KV, HS, direction, s);
}

template void rope(float*, const float*, int, int, int, int, int, RopePairs, int, CudaStream);
template void rope(bf16*, const float*, int, int, int, int, int, RopePairs, int, CudaStream);
