// Casts between float and bf16 on CUDA: a thread converts a quad of neighbours.
// 6 bytes an element are moved, each once; the bandwidth of device memory bounds it.
#include "llmc/ops/cast.h"

#include "llmc/ops/kernel.cuh"

namespace {

constexpr int kThreads = 256;

template <class To, class From>
__global__ void __launch_bounds__(kThreads, 4)
    cast_kernel(To* __restrict__ y, const From* __restrict__ x, size_t n, bool aligned) {
    const size_t i = (size_t(blockIdx.x) * kThreads + threadIdx.x) * 4;
    if (i >= n) return;

    if (aligned && i + 4 <= n) {
        const Quad<From> in = quad_load(x + i);
        Quad<To> out;
#pragma unroll
        for (int k = 0; k < 4; k++) out[k] = as_elem<To>(as_float(in[k]));
        quad_store(y + i, out);
    } else {
        for (size_t k = i; k < i + 4 && k < n; k++) y[k] = as_elem<To>(as_float(x[k]));
    }
}

template <class To, class From>
void cast_launch(To* y, const From* x, size_t n, CudaStream s) {
    if (n == 0) return;
    launch(cast_kernel<To, From>, blocks_for(n, kThreads * 4), kThreads, 0, s, y, x, n,
           quad_aligned(y) && quad_aligned(x));
}

}  // namespace

void cast(bf16* y, const float* x, size_t n, CudaStream s) {
    cast_launch(y, x, n, s);
}
void cast(float* y, const bf16* x, size_t n, CudaStream s) {
    cast_launch(y, x, n, s);
}
