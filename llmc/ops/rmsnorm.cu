// RMSNorm on CUDA; the kernels are layernorm's without the mean, norm.cuh.
#include "llmc/ops/rmsnorm.h"

#include "llmc/ops/norm.cuh"

template <class Elem>
void rmsnorm_forward(Elem* y, float* rstd, const Elem* x, const Elem* w, int N, int C, float eps,
                     CudaStream s) {
    norm_forward_launch<true, false, Elem>(nullptr, y, nullptr, rstd, x, nullptr, w, nullptr, N, C,
                                           eps, s);
}

template <class Elem>
void residual_rmsnorm_forward(Elem* residual, Elem* y, float* rstd, const Elem* x,
                              const Elem* branch, const Elem* w, int N, int C, float eps,
                              CudaStream s) {
    norm_forward_launch<true, true, Elem>(residual, y, nullptr, rstd, x, branch, w, nullptr, N, C,
                                          eps, s);
}

size_t rmsnorm_backward_workspace_bytes(int N, int C, CudaStream) {
    return norm_partials_bytes<true>(N, C);
}

template <class Elem>
void rmsnorm_backward(Elem* dx, float* dw, const Elem* dy, const Elem* x, const Elem* w,
                      const float* rstd, int N, int C, Workspace ws, CudaStream s) {
    norm_backward_launch<true, false>(dx, dw, nullptr, dy, x, w, nullptr, rstd, N, C, ws, s);
}

template <class Elem>
void residual_rmsnorm_backward(Elem* dresidual, float* dw, const Elem* dy, const Elem* residual,
                               const Elem* w, const float* rstd, int N, int C, Workspace ws,
                               CudaStream s) {
    norm_backward_launch<true, true>(dresidual, dw, nullptr, dy, residual, w, nullptr, rstd, N, C,
                                     ws, s);
}

// clang-format off
#define INSTANTIATE(Elem)                                                                          \
    template void rmsnorm_forward(Elem*, float*, const Elem*, const Elem*, int, int, float,        \
                                  CudaStream);                                                     \
    template void residual_rmsnorm_forward(Elem*, Elem*, float*, const Elem*, const Elem*,         \
                                           const Elem*, int, int, float, CudaStream);              \
    template void rmsnorm_backward(Elem*, float*, const Elem*, const Elem*, const Elem*,           \
                                   const float*, int, int, Workspace, CudaStream);                 \
    template void residual_rmsnorm_backward(Elem*, float*, const Elem*, const Elem*, const Elem*,  \
                                            const float*, int, int, Workspace, CudaStream);
// clang-format on
INSTANTIATE(float)
INSTANTIATE(bf16)
