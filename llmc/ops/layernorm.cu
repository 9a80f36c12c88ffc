// Layer normalisation on CUDA; the kernels are in norm.cuh.
#include "llmc/ops/layernorm.h"

#include "llmc/ops/norm.cuh"

template <class Elem>
void layernorm_forward(Elem* y, float* mean, float* rstd, const Elem* x, const Elem* w,
                       const Elem* b, int N, int C, float eps, CudaStream s) {
    norm_forward_launch<false, false, Elem>(nullptr, y, mean, rstd, x, nullptr, w, b, N, C, eps, s);
}

template <class Elem>
void residual_layernorm_forward(Elem* residual, Elem* y, float* mean, float* rstd, const Elem* x,
                                const Elem* branch, const Elem* w, const Elem* b, int N, int C,
                                float eps, CudaStream s) {
    norm_forward_launch<false, true>(residual, y, mean, rstd, x, branch, w, b, N, C, eps, s);
}

size_t layernorm_backward_workspace_bytes(int N, int C, CudaStream) {
    return norm_partials_bytes<false>(N, C);
}

template <class Elem>
void layernorm_backward(Elem* dx, float* dw, float* db, const Elem* dy, const Elem* x,
                        const Elem* w, const float* mean, const float* rstd, int N, int C,
                        Workspace ws, CudaStream s) {
    norm_backward_launch<false, false>(dx, dw, db, dy, x, w, mean, rstd, N, C, ws, s);
}

template <class Elem>
void residual_layernorm_backward(Elem* dresidual, float* dw, float* db, const Elem* dy,
                                 const Elem* residual, const Elem* w, const float* mean,
                                 const float* rstd, int N, int C, Workspace ws, CudaStream s) {
    norm_backward_launch<false, true>(dresidual, dw, db, dy, residual, w, mean, rstd, N, C, ws, s);
}

// clang-format off
#define INSTANTIATE(Elem)                                                                          \
    template void layernorm_forward(Elem*, float*, float*, const Elem*, const Elem*, const Elem*,  \
                                    int, int, float, CudaStream);                                  \
    template void residual_layernorm_forward(Elem*, Elem*, float*, float*, const Elem*,            \
                                             const Elem*, const Elem*, const Elem*, int, int,      \
                                             float, CudaStream);                                   \
    template void layernorm_backward(Elem*, float*, float*, const Elem*, const Elem*, const Elem*, \
                                     const float*, const float*, int, int, Workspace, CudaStream); \
    template void residual_layernorm_backward(Elem*, float*, float*, const Elem*, const Elem*,     \
                                              const Elem*, const float*, const float*, int, int,   \
                                              Workspace, CudaStream);
// clang-format on
INSTANTIATE(float)
INSTANTIATE(bf16)
