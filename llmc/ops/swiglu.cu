// SwiGLU on CUDA: a thread handles a quad of neighbours.
// Bytes an element of y: forward 3 x sizeof(Elem), backward 5 x sizeof(Elem), each moved once; the
// bandwidth of device memory bounds both.
#include "llmc/ops/swiglu.h"

#include "llmc/ops/kernel.cuh"

namespace {

constexpr int kThreads = 256;

// 1 / (1 + e^-x) and its complement, from e^-|x|: neither cancels nor overflows.
struct Sigmoid {
    float s, one_minus_s;
};
__device__ Sigmoid sigmoid(float x) {
    const float e = expf(-fabsf(x)), d = 1 / (1 + e);
    return x < 0 ? Sigmoid{e * d, d} : Sigmoid{d, e * d};
}

template <class Elem, bool kAligned>
__global__ void __launch_bounds__(kThreads, 4)
    swiglu_forward_kernel(Elem* __restrict__ y, const Elem* __restrict__ pre, size_t quads, int F) {
    const size_t i = size_t(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= quads) return;
    const int row_quads = ceil_div(F, 4), f = i % row_quads * 4;
    const size_t n = i / row_quads;
    const Elem* row = pre + n * 2 * F;
    const Quad<Elem> gate = row_quad_load<kAligned>(row, f, F),
                     up = row_quad_load<kAligned>(row + F, f, F);
    Quad<Elem> out;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const float g = as_float(gate[k]);
        out[k] = as_elem<Elem>(g * sigmoid(g).s * as_float(up[k]));
    }
    row_quad_store<kAligned>(y + n * F, f, F, out);
}

template <class Elem, bool kAligned>
__global__ void __launch_bounds__(kThreads, 4)
    swiglu_backward_kernel(Elem* dpre, const Elem* __restrict__ dy, const Elem* pre, size_t quads,
                           int F) {
    const size_t i = size_t(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= quads) return;
    const int row_quads = ceil_div(F, 4), f = i % row_quads * 4;
    const size_t n = i / row_quads;
    const Elem* row = pre + n * 2 * F;
    const Quad<Elem> gate = row_quad_load<kAligned>(row, f, F),
                     up = row_quad_load<kAligned>(row + F, f, F);
    const Quad<Elem> d = row_quad_load<kAligned>(dy + n * F, f, F);
    Quad<Elem> dgate, dup;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const float g = as_float(gate[k]), dk = as_float(d[k]);
        const Sigmoid g_of = sigmoid(g);
        dup[k] = as_elem<Elem>(dk * g * g_of.s);
        dgate[k] = as_elem<Elem>(dk * as_float(up[k]) * g_of.s * (1 + g * g_of.one_minus_s));
    }
    row_quad_store<kAligned>(dpre + n * 2 * F, f, F, dgate);
    row_quad_store<kAligned>(dpre + n * 2 * F + F, f, F, dup);
}

}  // namespace

template <class Elem>
void swiglu_forward(Elem* y, const Elem* pre, int N, int F, CudaStream s) {
    const size_t quads = size_t(N) * ceil_div(F, 4);
    if (quads == 0) return;
    const bool aligned = F % 4 == 0 && quad_aligned(y) && quad_aligned(pre);
    launch(aligned ? swiglu_forward_kernel<Elem, true> : swiglu_forward_kernel<Elem, false>,
           blocks_for(quads, kThreads), kThreads, 0, s, y, pre, quads, F);
}

template <class Elem>
void swiglu_backward(Elem* dpre, const Elem* dy, const Elem* pre, int N, int F, CudaStream s) {
    const size_t quads = size_t(N) * ceil_div(F, 4);
    if (quads == 0) return;
    const bool aligned = F % 4 == 0 && quad_aligned(dpre) && quad_aligned(dy) && quad_aligned(pre);
    launch(aligned ? swiglu_backward_kernel<Elem, true> : swiglu_backward_kernel<Elem, false>,
           blocks_for(quads, kThreads), kThreads, 0, s, dpre, dy, pre, quads, F);
}

template void swiglu_forward(float*, const float*, int, int, CudaStream);
template void swiglu_forward(bf16*, const bf16*, int, int, CudaStream);
template void swiglu_backward(float*, const float*, const float*, int, int, CudaStream);
template void swiglu_backward(bf16*, const bf16*, const bf16*, int, int, CudaStream);
