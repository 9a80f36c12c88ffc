// Rotary position embedding on CUDA: a thread turns one pair.
// Bytes: reads and writes the queries and keys of qkv once; the table stays in the second-level
// cache. The bandwidth of device memory bounds it.
#include "llmc/ops/rope.h"

#include "llmc/ops/kernel.cuh"

namespace {

constexpr int kThreads = 256;

// Thread i of all: pair i % (HS/2) of head i / (HS/2) % (H+KV) of row i / (HS/2) / (H+KV).
template <class Elem, bool kHalf>
__global__ void __launch_bounds__(kThreads, 4)
    rope_kernel(Elem* qkv, const float* __restrict__ table, size_t n, int T, int H, int KV, int HS,
                float direction) {
    const size_t i = size_t(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= n) return;
    const int half = HS / 2, heads = H + KV;
    const int pair = i % half, head = i / half % heads;
    const size_t row = i / half / heads;
    const float* angle = table + row % T * HS + pair;
    const float c = angle[0], s = direction * angle[half];

    Elem* x = qkv + (row * (H + 2 * KV) + head) * HS + (kHalf ? pair : 2 * pair);
    Elem* y = x + (kHalf ? half : 1);
    const float a = as_float(*x), b = as_float(*y);
    *x = as_elem<Elem>(a * c - b * s);
    *y = as_elem<Elem>(a * s + b * c);
}

}  // namespace

template <class Elem>
void rope(Elem* qkv, const float* table, int B, int T, int H, int KV, int HS, RopePairs pairs,
          int direction, CudaStream s) {
    const size_t n = size_t(B) * T * (H + KV) * (HS / 2);
    if (n == 0) return;
    launch(pairs == RopePairs::Half ? rope_kernel<Elem, true> : rope_kernel<Elem, false>,
           blocks_for(n, kThreads), kThreads, 0, s, qkv, table, n, T, H, KV, HS, float(direction));
}

template void rope(float*, const float*, int, int, int, int, int, RopePairs, int, CudaStream);
template void rope(bf16*, const float*, int, int, int, int, int, RopePairs, int, CudaStream);
