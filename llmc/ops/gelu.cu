// GELU on CUDA: a thread handles a quad of neighbours.
// Bytes an element: forward 2 x sizeof(Elem), backward 3 x sizeof(Elem), each moved once; the
// bandwidth of device memory bounds both. Mostly the matmul next door does this work in its
// epilogue (matmul.cu); these kernels serve where it cannot.
#include "llmc/ops/gelu.h"

#include "llmc/ops/gelu.cuh"
#include "llmc/ops/kernel.cuh"

namespace {

constexpr int kThreads = 256;

template <class Elem>
__global__ void __launch_bounds__(kThreads, 4)
    gelu_forward_kernel(Elem* y, const Elem* x, size_t n, bool aligned) {
    const size_t i = (size_t(blockIdx.x) * kThreads + threadIdx.x) * 4;
    if (i >= n) return;

    if (aligned && i + 4 <= n) {
        Quad<Elem> v = quad_load(x + i);
#pragma unroll
        for (int k = 0; k < 4; k++) v[k] = as_elem<Elem>(gelu_value(as_float(v[k])));
        quad_store(y + i, v);
    } else {
        for (size_t k = i; k < i + 4 && k < n; k++)
            y[k] = as_elem<Elem>(gelu_value(as_float(x[k])));
    }
}

template <class Elem>
__global__ void __launch_bounds__(kThreads, 4)
    gelu_backward_kernel(Elem* dx, const Elem* dy, const Elem* x, size_t n, bool aligned) {
    const size_t i = (size_t(blockIdx.x) * kThreads + threadIdx.x) * 4;
    if (i >= n) return;

    if (aligned && i + 4 <= n) {
        Quad<Elem> d = quad_load(dy + i);
        const Quad<Elem> v = quad_load(x + i);
#pragma unroll
        for (int k = 0; k < 4; k++)
            d[k] = as_elem<Elem>(as_float(d[k]) * gelu_slope(as_float(v[k])));
        quad_store(dx + i, d);
    } else {
        for (size_t k = i; k < i + 4 && k < n; k++)
            dx[k] = as_elem<Elem>(as_float(dy[k]) * gelu_slope(as_float(x[k])));
    }
}

}  // namespace

template <class Elem>
void gelu_forward(Elem* y, const Elem* x, size_t n, CudaStream s) {
    if (n == 0) return;
    launch(gelu_forward_kernel<Elem>, blocks_for(n, kThreads * 4), kThreads, 0, s, y, x, n,
           quad_aligned(y) && quad_aligned(x));
}

template <class Elem>
void gelu_backward(Elem* dx, const Elem* dy, const Elem* x, size_t n, CudaStream s) {
    if (n == 0) return;
    launch(gelu_backward_kernel<Elem>, blocks_for(n, kThreads * 4), kThreads, 0, s, dx, dy, x, n,
           quad_aligned(dx) && quad_aligned(dy) && quad_aligned(x));
}

template void gelu_forward(float*, const float*, size_t, CudaStream);
template void gelu_forward(bf16*, const bf16*, size_t, CudaStream);
template void gelu_backward(float*, const float*, const float*, size_t, CudaStream);
template void gelu_backward(bf16*, const bf16*, const bf16*, size_t, CudaStream);
