// llmc/ops/layernorm.h: normalise each row of x, then scale and shift.
//   mean[n] = sum_c x[n,c] / C,  rstd[n] = 1 / sqrt(sum_c (x[n,c] - mean[n])^2 / C + eps)
//   y[n,c]  = (x[n,c] - mean[n]) * rstd[n] * w[c] + b[c]
// Backward, with xhat = (x - mean) * rstd and g = dy * w:
//   dx = rstd * (g - mean_c(g) - xhat * mean_c(g * xhat)),  dw += sum_n dy * xhat,  db += sum_n dy
// Ba, Kiros, Hinton 2016, arXiv:1607.06450, section 3.
// Definition: layernorm_cpu.cpp.  Fast: layernorm.cu.  Proof: layernorm_test.cpp.
#pragma once
#include "llmc/core/backend.h"
#include "llmc/core/dtype.h"

void layernorm_forward(float* y,                  // (N, C)  =
                       float* mean, float* rstd,  // (N)     =   saved for backward
                       const float* x,            // (N, C)
                       const float* w,            // (C)
                       const float* b,            // (C)
                       int N, int C, float eps, CpuStream s);
template <class Elem>
void layernorm_forward(Elem* y, float* mean, float* rstd, const Elem* x, const Elem* w,
                       const Elem* b, int N, int C, float eps, CudaStream s);

// Fused: add a branch to the residual stream, then normalise the sum.
//   residual = x + branch,  y = layernorm(residual)
void residual_layernorm_forward(float* residual,           // (N, C)  =   may be the same as x
                                float* y,                  // (N, C)  =
                                float* mean, float* rstd,  // (N)     =   saved for backward
                                const float* x,            // (N, C)
                                const float* branch,       // (N, C)
                                const float* w,            // (C)
                                const float* b,            // (C)
                                int N, int C, float eps, CpuStream s);
template <class Elem>
void residual_layernorm_forward(Elem* residual, Elem* y, float* mean, float* rstd, const Elem* x,
                                const Elem* branch, const Elem* w, const Elem* b, int N, int C,
                                float eps, CudaStream s);

// Scratch of both backward functions: per-thread or per-block partial sums of dw and db.
size_t layernorm_backward_workspace_bytes(int N, int C, CpuStream s);
size_t layernorm_backward_workspace_bytes(int N, int C, CudaStream s);

void layernorm_backward(float* dx,                             // (N, C)  =
                        float* dw, float* db,                  // (C)     +=
                        const float* dy,                       // (N, C)
                        const float* x, const float* w,        // (N, C), (C)
                        const float* mean, const float* rstd,  // (N)
                        int N, int C, Workspace ws, CpuStream s);
template <class Elem>
void layernorm_backward(Elem* dx, float* dw, float* db, const Elem* dy, const Elem* x,
                        const Elem* w, const float* mean, const float* rstd, int N, int C,
                        Workspace ws, CudaStream s);

// Backward of residual_layernorm. On entry dresidual holds the gradient that reaches the residual
// stream from above; on return also what flows through the norm. It is then the gradient of both x
// and branch.
void residual_layernorm_backward(float* dresidual,                       // (N, C)  +=
                                 float* dw, float* db,                   // (C)     +=
                                 const float* dy,                        // (N, C)
                                 const float* residual, const float* w,  // (N, C), (C)
                                 const float* mean, const float* rstd,   // (N)
                                 int N, int C, Workspace ws, CpuStream s);
template <class Elem>
void residual_layernorm_backward(Elem* dresidual, float* dw, float* db, const Elem* dy,
                                 const Elem* residual, const Elem* w, const float* mean,
                                 const float* rstd, int N, int C, Workspace ws, CudaStream s);
